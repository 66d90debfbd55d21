"""Read the ops of a recording without GPU activity, such as of a run on a CPU, as the calls that a GPU would get.

PyTorch calls the same ops on every device until it comes to one that has kernels of its own. Those are the calls::

    aten::linear                          made of others: look inside
      aten::addmm                         a call
        aten::copy_                       what the CPU does for it: not a call

Attention and dropout are calls as a whole, since CUDA has kernels for them. On a CPU optimizers go from parameter to
parameter, on CUDA through all of them at once. What a data loader does stays on the CPU.
"""

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import polars as pl
import torch
from torch import Tensor

from tracekit.capturing.calls import Call, OpProfile
from tracekit.capturing.cuda_choices import MAX_FLASH_WIDTH, RECURRENT
from tracekit.capturing.kernel_names import list_following_ops, list_kernel_names
from tracekit.capturing.ops import NO_KERNEL, TYPES, build_call
from tracekit.capturing.program import CapturedProgram
from tracekit.capturing.recurrent_layers import LSTM, MATRICES, MODES
from tracekit.errors import CaptureError
from tracekit.ingest.batches import select_outermost
from tracekit.messages import models as messages
from tracekit.models.captured import CaptureFacts
from tracekit.trace import RankTrace
from tracekit.workload import signature
from tracekit.workload.parameters import ACCUMULATE_GRAD_OP
from tracekit.workload.signature import Signature

ATTENTION = "scaled_dot_product_attention"
ATTENTION_OPS = {
    ATTENTION: ("query", "key", "value", "mask", "dropout", "causal"),
    "_scaled_dot_product_flash_attention_for_cpu": ("query", "key", "value", "dropout", "causal", "mask"),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (
        *("grad", "query", "key", "value", "output", "sums", "dropout", "causal", "mask"),
    ),
}
"""Ops of a CPU, and their arguments (PyTorch's native_functions.yaml)."""
FLASH = {
    False: ("_scaled_dot_product_flash_attention", ("query", "key", "value", "dropout", "causal")),
    True: (
        "_scaled_dot_product_flash_attention_backward",
        ("grad", "query", "key", "value", "output", "sums", "", "", "", "", "dropout", "causal"),
    ),
}
EFFICIENT = {
    False: ("_scaled_dot_product_efficient_attention", ("query", "key", "value", "mask", "", "dropout", "causal")),
    True: (
        "_scaled_dot_product_efficient_attention_backward",
        ("grad", "query", "key", "value", "mask", "output", "sums", "", "", "dropout", "", "causal"),
    ),
}
"""CUDA's ops, forward and backward, and where their arguments are; blank: what a CPU's doesn't have."""


def build_attention_call(op: str, inputs: Signature) -> Call:
    """Build CUDA's call: FlashAttention in half precision without a mask, else memory-efficient attention."""
    place = {name: index for index, name in enumerate(ATTENTION_OPS[op])}
    query, value, mask = (inputs.get_tensor(place[name]) for name in ("query", "value", "mask"))
    name, arguments = (FLASH if _suits_flash(query, value, mask) else EFFICIENT)["grad" in place]

    def pick(values: list[Any], blank: Any) -> list[Any]:
        found = (place.get(argument, len(values)) for argument in arguments)
        return [values[index] if index < len(values) else blank for index in found]

    told = list(inputs.types)
    if mask and mask.dtype == "bool":
        told[place["mask"]] = told[place["query"]]  # converted to what is added to the scores
    dims, types, concrete = pick(inputs.dims, []), pick(told, ""), pick(inputs.concrete_inputs, "")
    heads = [None if one is None else torch.empty(one.shape, device="meta") for one in (query, query)]
    return Call(f"aten::{name}", dims, types, concrete, list_kernel_names(name, heads))


def _suits_flash(query: signature.Tensor | None, value: signature.Tensor | None, mask: signature.Tensor | None) -> bool:
    if query is None or value is None or query.dtype not in ("fp16", "bf16") or (mask and mask.shape):
        return False
    return query.shape[-1] == value.shape[-1] <= MAX_FLASH_WIDTH


ATEN = "aten::"
DROPOUT, FUSED_DROPOUT = "dropout", "native_dropout"
WHOLE = (ATTENTION, DROPOUT, "_fused_rms_norm")
"""Ops that a CPU makes of others, and that have a kernel of their own on CUDA."""
HOST_ONLY = re.compile(
    r"^(item|is_\w+|resolve_\w+|result_type|resize_|set_|lift_fresh|randperm|pin_memory|_reshape_alias)$"
)
"""Ops that launch nothing, beside those of :data:`~tracekit.capturing.ops.NO_KERNEL`."""
MADE_OF_OTHERS = re.compile(
    r"^(to|_to_copy|clone|contiguous|zeros|ones|full|\w+_like|new_\w+|_native_multi_head_attention|_transformer_\w+)$"
)
"""Ops inside which another one, such as ``aten::copy_``, launches the kernel, though PyTorch doesn't say so."""
LISTS = "_foreach_|_fused_"
LOADER, UPDATE = r"^enumerate\(DataLoader\)", r"^Optimizer\.step#"
"""Annotations of the profiler around a data loader's work and an optimizer's."""
DTYPES = {name.replace(" ", ""): dtype for dtype, name in TYPES.items()}
CALL, LIBRARY = "call", "library"
LIBRARY_OP = re.compile(r"^(?!autograd::|torch::|prims?::|profiler::|c10d::|nccl:|gloo:)\w+::\w+$")
"""Ops of libraries; those of PyTorch itself that launch nothing, and collectives, are none."""
THREAD = ("pid", "tid")
INPUTS = ("input_dims", "input_types", "concrete_inputs", "input_strides")
FLOAT_TYPE = r'"(double|float|c10::Half|c10::BFloat16)"'
LIST_TYPE = "TensorList"
UPDATE_OP = re.compile(LISTS)
FUSED_LISTS = 4
"""Lists of a fused optimizer that are as long as the parameters: these, gradients and moments."""


@dataclass(frozen=True)
class RecordedCalls:
    """The ops of a recording that are calls.

    Attributes:
        ops: Their rows (``schema.OPS``), in order.
        calls: The calls that a GPU gets for each of them.
    """

    ops: pl.DataFrame
    calls: tuple[tuple[Call, ...], ...]


def find_calls(rank: RankTrace) -> RecordedCalls:
    """Find the ops of a recording that are calls.

    Raises:
        CaptureError: Its layers are recurrent, or the values of its ops' inputs weren't recorded.
    """
    if not rank.ops["concrete_inputs"].count():
        raise CaptureError(messages.RECORDING_WITHOUT_VALUES(path=rank.source))
    ops = _merge_updates(_select_calls(rank), rank.annotations)
    return RecordedCalls(ops, tuple(map(tuple, _build_calls(ops, _list_parameters(rank)))))


def _select_calls(rank: RankTrace) -> pl.DataFrame:
    """Select the ops that are calls, in order."""
    ops = rank.ops.with_row_index("op_row").filter(pl.col("input_dims").is_not_null())
    kinds = {kind: [name for name in ops["name"].unique() if _classify(name) == kind] for kind in (CALL, LIBRARY)}
    calls = select_outermost(ops.filter(pl.col("name").is_in(kinds[CALL])), *THREAD)
    calls = pl.concat([calls, _select_empty(ops.filter(pl.col("name").is_in(kinds[LIBRARY])), calls)]).sort("ts_ns")
    for loader in rank.annotations.filter(pl.col("name").str.contains(LOADER)).iter_rows(named=True):
        inside = pl.col("ts_ns").is_between(loader["ts_ns"], loader["ts_ns"] + loader["dur_ns"])
        calls = calls.filter(~(inside & (pl.col("tid") == loader["tid"])))
    return calls


def _select_empty(ops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Select the outermost ops that hold no call."""
    held = calls.select(*THREAD, call_ns="ts_ns").sort("call_ns")
    joined = ops.sort("ts_ns").join_asof(
        held, left_on="ts_ns", right_on="call_ns", by=list(THREAD), strategy="forward", check_sortedness=False
    )
    is_empty = pl.col("call_ns").is_null() | (pl.col("call_ns") > pl.col("ts_ns") + pl.col("dur_ns"))
    return select_outermost(joined.filter(is_empty).drop("call_ns"), *THREAD)


@cache
def _classify(name: str) -> str | None:
    """Return whether an op has kernels of its own, is a library's that may have, or launches none."""
    op = name.removeprefix(ATEN)
    if op == name:
        return LIBRARY if LIBRARY_OP.match(name) else None
    if NO_KERNEL.search(op) or HOST_ONLY.search(op) or MADE_OF_OTHERS.search(op):
        return None
    if not hasattr(torch.ops.aten, op):
        return LIBRARY
    return CALL if op in WHOLE or op in RECURRENT or not _is_composite(op) else None


def _is_composite(op: str) -> bool:
    """Return whether PyTorch makes an op of others on every device."""
    packet = getattr(torch.ops.aten, op)
    overloads = [getattr(packet, name) for name in packet.overloads()]
    told = [one for one in overloads if "Dimname" not in str(one._schema) and not one._overloadname.endswith("out")]
    return all(map(_is_made_of_others, told or overloads))


def _is_made_of_others(overload: Any) -> bool:
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd"))
    except RuntimeError:  # an alias of TorchScript alone
        return True


def _merge_updates(calls: pl.DataFrame, annotations: pl.DataFrame) -> pl.DataFrame:
    """Merge what an optimizer does for one parameter after the other into ops for lists, as CUDA's has by default.

    Add ``members``: the inputs of the merged ops, or null. With the ops a and b for each of three parameters::

        a b a b a b    ->    a(3) b(3)
    """
    updates = annotations.filter(pl.col("name").str.contains(UPDATE)).select("ts_ns", "dur_ns").sort("ts_ns")
    begun = pl.Series(updates["ts_ns"].search_sorted(calls["ts_ns"], side="right"), dtype=pl.Int64) - 1
    ends = pl.concat([updates["ts_ns"] + updates["dur_ns"], pl.Series([-1])])
    single = (calls["ts_ns"] <= ends.gather(begun.replace(-1, updates.height))) & ~calls["name"].str.contains(LISTS)
    rest, looped = calls.filter(~single), calls.filter(single).with_columns(update=begun.filter(single))
    if looped.is_empty():
        return calls.with_columns(members=pl.lit(None, pl.List(pl.String)))
    counts = looped.group_by("update", "name").len().group_by("update").agg(parameters=pl.col("len").min())
    number = pl.int_range(pl.len()).over("update", "name")
    each = (pl.len().over("update", "name") // pl.col("parameters")).clip(1)
    merged = (
        looped.join(counts, on="update", how="left", maintain_order="left")
        .with_columns(turn=number % each)
        .group_by("update", "name", "turn", maintain_order=True)
        .agg(pl.exclude("input_dims", "parameters").first(), pl.col("input_dims").first(), members=pl.col("input_dims"))
    )
    whole = rest.with_columns(members=pl.lit(None, pl.List(pl.String)))
    return pl.concat([whole, merged.select(whole.columns)]).sort("ts_ns")


def _list_parameters(rank: RankTrace) -> tuple[Tensor, ...]:
    """List the parameters that get gradients in the first step, on the meta device."""
    gradients = rank.ops.filter((pl.col("name") == ACCUMULATE_GRAD_OP) & pl.col("input_dims").is_not_null())
    steps = rank.annotations.filter(pl.col("name").str.contains(UPDATE))["ts_ns"]
    first = gradients.filter(pl.col("ts_ns") < steps.min()) if steps.len() else gradients
    table = (first if first.height else gradients).select("input_dims", "input_types")
    inputs = [Signature.parse(ACCUMULATE_GRAD_OP, dims, types, None) for dims, types in table.iter_rows()]
    return tuple(_make_input(one, 0, torch.float32) for one in inputs if one.get_tensors(0))


def _build_calls(table: pl.DataFrame, parameters: tuple[Tensor, ...]) -> list[list[Call]]:
    """Build the calls of each op; those alike are built once."""
    build = cache(_build_op_calls)
    single = pl.col("input_types").str.extract(FLOAT_TYPE).forward_fill().fill_null("float")
    rows = table.with_columns(pl.col(*INPUTS).fill_null("[]"), dtype=single).select("name", "dtype", *INPUTS, "members")
    return [
        _build_list_call(name, types, members)
        if members
        else _build_update_call(name, dims, types, concrete, parameters)
        if UPDATE_OP.search(name) and LIST_TYPE in types
        else build(name, dtype, dims, types, concrete, strides)
        for name, dtype, dims, types, concrete, strides, members in rows.iter_rows()
    ]


def _build_list_call(name: str, types: str, members: list[str]) -> list[Call]:
    """Build the call of an optimizer's op for a list of parameters."""
    dims = [list(shapes) for shapes in zip(*map(json.loads, members), strict=False)]
    op = f"{ATEN}_foreach_{name.removeprefix(ATEN)}"
    return [Call(op, dims, json.loads(types), [""] * len(dims), ("multi_tensor_apply_kernel",))]


def _build_update_call(name: str, dims: str, types: str, concrete: str, parameters: tuple[Tensor, ...]) -> list[Call]:
    """Build the call of an optimizer's op for lists, whose types weren't recorded, and in old traces no shapes either.

    They are those of the parameters. What only counts steps has as many numbers and does nothing else.
    """
    op, inputs = name.removeprefix(ATEN), Signature.parse(name, dims, types, concrete)
    if not parameters or inputs.get_value(1) == 1:
        return []
    lists = [place for place, kind in enumerate(inputs.types) if kind == LIST_TYPE]
    if op.startswith("_fused"):
        lists = lists[:FUSED_LISTS]
    given = [list(parameters) if place in lists else inputs.get_value(place) for place in range(len(inputs.dims))]
    return [build_call(op, given)]


def _build_op_calls(name: str, dtype: str, dims: str, types: str, concrete: str, strides: str) -> list[Call]:
    """Build the calls of an op as CUDA has them.

    ``dtype`` is that of lists of tensors, which isn't recorded: that of the last op before which has one. What is told
    of the inputs is JSON.

    Raises:
        CaptureError: It is a recurrent layer that trains.
    """
    op, inputs = name.removeprefix(ATEN), Signature.parse(name, dims, types, concrete, strides)
    if op in RECURRENT:
        return [_build_recurrence(op, inputs, DTYPES[dtype])]
    if op in ATTENTION_OPS:
        return [build_attention_call(op, inputs)]
    if _classify(name) == LIBRARY:
        return [Call(name, inputs.dims, inputs.types, inputs.concrete_inputs, (name,), inputs.strides)]
    op = FUSED_DROPOUT if op == DROPOUT else op
    given = [_make_input(inputs, place, DTYPES[dtype]) for place in range(len(inputs.dims))]
    calls = [build_call(op, given), *(build_call(*one) for one in list_following_ops(op, given, None))]
    return [call for call in calls if call.kernels]


RECURRENT_ARGUMENTS = 9
"""Of a recurrent layer whose sequences aren't packed."""


def _build_recurrence(op: str, inputs: Signature, dtype: torch.dtype) -> Call:
    """Build cuDNN's call of recurrent layers; a CPU's backward pass of them tells less than it takes.

    Raises:
        CaptureError: They train, or their sequences are packed.
    """
    given = [_make_input(inputs, place, dtype) for place in range(len(inputs.dims))]
    if len(given) != RECURRENT_ARGUMENTS or given[6] or not isinstance(given[2], list):
        raise CaptureError(messages.RECURRENCE_UNKNOWN())
    x, states, weights, has_biases, layers, dropout, trains, both, batch_first = given
    state, cell = states if op == LSTM else (states, None)
    stride = 2 * MATRICES if has_biases else MATRICES
    told = (x, weights, stride, None, state, cell, MODES[op], weights[1].shape[1], 0, layers)
    return build_call("_cudnn_rnn", (*told, batch_first, dropout, trains, both, [], None))


def _make_input(inputs: Signature, index: int, dtype: torch.dtype) -> Any:
    """Make one input: a tensor without data, a list of them, or a value.

    ``dtype`` is its type where none was recorded.
    """
    kind = inputs.types[index] if index < len(inputs.types) else ""
    known = DTYPES.get(kind.replace(" ", ""), dtype)
    tensors = [_make_tensor(one.shape, one.strides, known) for one in inputs.get_tensors(index)]
    nested = bool(inputs.dims[index]) and isinstance(inputs.dims[index][0], list)
    return tensors if nested else tensors[0] if tensors else inputs.get_value(index)


def _make_tensor(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if len(strides) != len(shape):
        return torch.empty(shape, dtype=dtype, device="meta")
    return torch.empty_strided(shape, strides, dtype=dtype, device="meta")


COLLECTIVE = "record_param_comms"
"""The op that PyTorch notes once for each."""
MARK_GAP_US = 1e-4
"""Between the calls of one op, whose order alone counts."""


def read_program(rank: RankTrace) -> CapturedProgram | None:
    """Read the program of a recording without GPU activity; None where nothing would launch a kernel.

    Raises:
        CaptureError: Its layers are recurrent, or the values of its ops' inputs weren't recorded.
    """
    return build_program(rank, find_calls(rank))


def build_program(rank: RankTrace, found: RecordedCalls) -> CapturedProgram | None:
    """Build the program of a recording from its calls; None where there are none."""
    begin_ns = rank.ops["ts_ns"].min()
    calls = tuple(call for several in found.calls for call in several)
    if not calls:
        return None
    # From the first op on, floating-point numbers hold the times exactly.
    middle_us = ((found.ops["ts_ns"] - begin_ns + found.ops["dur_ns"] // 2) / 1e3).to_list()
    marks_us = [
        us + place * MARK_GAP_US
        for us, several in zip(middle_us, found.calls, strict=True)
        for place in range(len(several))
    ]
    profile = OpProfile(
        _list_events(_begin_at_zero(rank), found.ops.with_columns(pl.col("ts_ns") - begin_ns)),
        marks_us,
        [-1] * len(calls),
    )
    return CapturedProgram(rank.source, calls, profile, _find_facts(rank))


def _begin_at_zero(rank: RankTrace) -> RankTrace:
    """Return the recording with times from its first op on."""
    begin = pl.col("ts_ns") - rank.ops["ts_ns"].min()
    tables = (rank.ops, rank.annotations, rank.frames)
    ops, annotations, frames = (table.with_columns(begin) for table in tables)
    return replace(rank, ops=ops, annotations=annotations, frames=frames)


def _list_events(rank: RankTrace, calls: pl.DataFrame) -> list[dict[str, Any]]:
    """List the ops and annotations as the profiler's events, without what the CPU does inside calls."""
    ops = rank.ops.with_row_index("op_row").sort("ts_ns")
    spans = calls.select(*THREAD, "ts_ns", end_ns=pl.col("ts_ns") + pl.col("dur_ns")).sort("ts_ns")
    joined = ops.join_asof(spans, on="ts_ns", by=list(THREAD), check_sortedness=False)
    # The calls themselves are added with their kernels.
    inside = (pl.col("ts_ns") < pl.col("end_ns")) & (pl.col("ts_ns") + pl.col("dur_ns") <= pl.col("end_ns"))
    outer = joined.filter(~inside.fill_null(value=False))
    named = [(outer, "cpu_op"), (rank.annotations, "user_annotation"), (rank.frames, "python_function")]
    events = [_make_event(row, kind) for table, kind in named for row in table.iter_rows(named=True)]
    return sorted(events, key=lambda event: (event["ts"], -event["dur"]))


def _make_event(row: dict[str, Any], kind: str) -> dict[str, Any]:
    noted = {"Input Dims": "input_dims", "Input type": "input_types", "Concrete Inputs": "concrete_inputs"}
    args = {name: json.loads(row[column]) for name, column in noted.items() if row.get(column)}
    return {"cat": kind, "name": row["name"], "ts": row["ts_ns"] / 1e3, "dur": row["dur_ns"] / 1e3, "args": args}


def _find_facts(rank: RankTrace) -> CaptureFacts:
    """Find what the ops tell of the program: whether it has gradients. What memory holds, they don't tell."""
    gradients = rank.ops.filter((pl.col("name") == ACCUMULATE_GRAD_OP) & pl.col("input_dims").is_not_null())
    return CaptureFacts(
        gpu="",
        parameters=0,
        parameter_bytes=0,
        held_bytes=0,
        peak_bytes=0,
        trains=not gradients.is_empty(),
        collectives=int((rank.ops["name"] == COLLECTIVE).sum()),
    )
