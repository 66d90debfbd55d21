"""A trace to its kernel table."""

from typing import Any

import polars as pl

from tracekit import schema
from tracekit.trace import RankTrace
from tracekit.workload import (
    collectives,
    experts,
    geometry,
    gradients,
    outputs,
    parameters,
    phases,
    projections,
    repeats,
    stacks,
)
from tracekit.workload import steps as step_table
from tracekit.workload.classify import classify, is_helper
from tracekit.workload.names import copy_kind_of, describe, dtype_of
from tracekit.workload.ops import fbgemm, layout, norm, optimizer, work
from tracekit.workload.ops.conv import as_weight_gradient, is_weight_gradient
from tracekit.workload.ops.vector import Columns
from tracekit.workload.owners import innermost_ops, launching_calls
from tracekit.workload.signature import ITEM_BYTES, Signature

CALL_SIGNATURE = (
    "op", "name", "kind", "input_dims", "input_types", "input_strides", "concrete_inputs", "output_dims", "elements",
    "blocks", "threads_per_block",
)  # fmt: skip
DESCRIPTION = (
    "family", "dtype", "direction", "batch", "m", "n", "k", "heads", "kv_heads", "q_len", "kv_len", "head_dim",
    "causal", "rows", "cols", "flops", "bytes", "work_low", "work_high", "copy_kind",
)  # fmt: skip
FROM_NAME = ("tile_m", "tile_n", "tile_k", "stages", "split_k", "layout", "tensor_core", "algorithm")
# Their precision is the instructions', which the kernel's name tells; elsewhere it is the inputs'.
COMPUTE_FAMILIES = ("gemm", "conv", "attention", "moe")
MOVERS = {"memcpy": ("aten::copy_", "aten::_to_copy"), "memset": ("aten::zero_", "aten::fill_")}
EXTRA_TYPES = {"output_dims": pl.String, "elements": pl.Int64, "shares": pl.Boolean}


def extract(trace: RankTrace) -> pl.DataFrame:
    """One row per GPU activity, joined to what launched it, with the work it does (``schema.KERNELS``).

    Rows keep the order of ``trace.activities``.
    """
    owned = _join_owners(trace)
    work_of = _describe(owned.select(CALL_SIGNATURE).unique())
    described = owned.rename({"bytes": "recorded_bytes"}).join(
        work_of, on=CALL_SIGNATURE, how="left", nulls_equal=True, maintain_order="left"
    )
    sized = described.with_columns(bytes=pl.coalesce("recorded_bytes", "bytes"))
    shared = _share(gradients.tell_apart(collectives.describe(sized, trace.ops)))
    repeated = repeats.inherit(shared.with_columns(work_from=_work_from()))
    known = experts.fill(geometry.fill(projections.fill(repeated, trace.ops)))
    return schema.KERNELS.conform(known.with_columns(phase=phases.phase_of("launched_in")))


def has_work() -> pl.Expr:
    """Whether a kernel's work is known: its dimensions, or the bytes it moves."""
    return pl.any_horizontal(pl.col("m", "q_len", "bytes").is_not_null())


def _work_from() -> pl.Expr:
    sized = pl.col("kind").is_in(["memcpy", "memset"]) | (pl.col("family") == "collective")
    return (
        pl.when(has_work() & pl.col("from_gradients"))
        .then(pl.lit("gradients"))
        .when(has_work() & sized)
        .then(pl.lit("recorded"))
        .when(has_work())
        .then(pl.lit("shapes"))
    )


def _join_owners(trace: RankTrace) -> pl.DataFrame:
    """Activities with the call, op and step that launched them, and that op's inputs."""
    call = launching_calls(trace.activities, trace.calls)
    op_row = _gather(innermost_ops(trace.calls, trace.ops), call)
    columns = _of_ops(trace.ops, op_row)
    captured_row = pl.repeat(None, trace.activities.height, dtype=pl.Int64, eager=True)
    if trace.captured is not None:
        captured = trace.captured
        captured_row = _gather(innermost_ops(captured.calls, captured.ops), captured.launched_by)
        replayed = captured_row.is_not_null()
        op_row = op_row.set(replayed, None)
        others = _of_ops(captured.ops, captured_row)
        columns = {name: others[name].zip_with(replayed, values) for name, values in columns.items()}
    module, line = stacks.launched_at(trace, call)
    recorded = [pl.coalesce(column.name, columns.pop(column.name)) for column in schema.COLLECTIVE]
    return trace.activities.with_columns(
        *recorded,
        call=call,
        op_row=op_row,
        captured_row=captured_row,
        step=_steps(trace, call),
        launched_in=phases.launched_in(trace, call),
        module=module,
        python_line=line,
        **columns,
    ).with_columns(elements=parameters.over_all(parameters.elements_by_blocks(trace.ops)))


def _of_ops(ops: pl.DataFrame, rows: pl.Series) -> dict[str, pl.Series]:
    """What ops tell of the activities that they own, by column."""
    columns = (ops[column.name] for column in (*schema.SIGNATURE, *schema.COLLECTIVE))
    named = (ops["name"].alias("op"), outputs.infer(ops), *columns)
    return {values.name: _gather(values, rows) for values in named}


def _steps(trace: RankTrace, call: pl.Series) -> pl.Series:
    """The step that launched each activity; a trace without step marks is one step, whoever launched it."""
    steps = step_table.find(trace)
    if step_table.is_whole_trace(steps):
        return pl.repeat(step_table.WHOLE_TRACE, trace.activities.height, dtype=pl.Int64, eager=True)
    return step_table.assign(_gather(trace.calls["ts_ns"], call), steps)


def _gather(values: pl.Series, rows: pl.Series) -> pl.Series:
    """``values`` at ``rows``; null where the row is."""
    if values.is_empty():
        return pl.Series(values.name, [None] * len(rows), dtype=values.dtype)
    return values.gather(rows)


def _describe(signatures: pl.DataFrame) -> pl.DataFrame:
    """Family, dtype and work of each distinct kernel in each distinct call."""
    rows = [row | _describe_one(row) for row in signatures.iter_rows(named=True)]
    types = schema.KERNELS.dtypes | EXTRA_TYPES
    return pl.DataFrame(
        rows, schema={name: types[name] for name in (*CALL_SIGNATURE, *DESCRIPTION, *FROM_NAME, "shares")}
    )


def _describe_one(row: dict[str, Any]) -> dict[str, Any]:
    op, name, kind = row["op"], row["name"], row["kind"]
    family = classify(kind, name, op)
    by_name = dtype_of(name) if kind == "kernel" else None
    known = describe(name) if kind == "kernel" else None
    described = {"family": family, "dtype": by_name, "shares": False}
    described |= {column: getattr(known, column, None) for column in FROM_NAME}
    if kind == "memcpy":
        described["copy_kind"] = copy_kind_of(name)
    if op is None or row["input_dims"] is None:
        return described
    inputs = (row["input_dims"], row["input_types"], row["concrete_inputs"], row["input_strides"], row["output_dims"])
    signature = Signature.parse(op, *inputs)
    if kind != "kernel":
        return described | {"bytes": _moved(signature, kind)}
    told = known is not None and known.dtype is not None and known.family in COMPUTE_FAMILIES
    if not told and by_name != "tf32":
        described["dtype"] = signature.dtype or by_name
    return described | _work(signature, family, by_name, row)


def _moved(signature: Signature, kind: str) -> int | None:
    """Bytes of a copy or set, which AMD's traces don't record, from the op that asked for it."""
    target = signature.at(0)
    return target[0].numel * target[0].item_bytes(4) if target and signature.op in MOVERS[kind] else None


def _work(signature: Signature, family: str, by_name: str | None, row: dict[str, Any]) -> dict[str, Any]:
    """What one kernel does: its own part where that can be told, else the op's work, to be shared."""
    name, item_bytes = row["name"], ITEM_BYTES.get(by_name or "", 4)
    if fbgemm.OPS.search(signature.op):
        columns = fbgemm.work(signature, name, item_bytes)
        return {**(columns or {}), "shares": fbgemm.UPDATE.search(name) is not None}
    if is_helper(family, signature.op):
        own = layout.assistance(signature, name, row["blocks"], row["threads_per_block"])
    else:
        own = norm.own_passes(signature, name, item_bytes) if family == "norm" else None
    if own is not None or is_helper(family, signature.op):
        return {**(own or {}), "shares": False}
    columns = work(signature, family, item_bytes)
    if columns is None and row["elements"] is not None:
        columns = optimizer.over_parameters(signature, name, row["elements"], item_bytes)
    return {**_in_direction(columns or {}, name), "shares": True}


def _in_direction(columns: Columns, kernel: str) -> Columns:
    backward = columns.get("direction") == "dgrad" and is_weight_gradient(kernel)
    return as_weight_gradient(columns) if backward else columns


def _share(kernels: pl.DataFrame) -> pl.DataFrame:
    """Kernels that do one op's work together share it by their measured time.

    Split products, but also any op on a tensor too large for 32-bit indexing, which PyTorch runs in pieces.
    """
    owned = pl.any_horizontal(pl.col("op_row", "captured_row").is_not_null())
    # Every replay of a graph runs its captured ops once.
    owner = pl.struct("op_row", "captured_row", pl.when(pl.col("captured_row").is_not_null()).then("call"))
    together = pl.col("shares"), owned, pl.col("family") != "collective", has_work()
    part = pl.col("dur_ns") / pl.col("dur_ns").sum().over(owner, "family", "direction", "shares")
    return kernels.with_columns(share=pl.when(*together, part.is_finite()).then(part).otherwise(1.0))
