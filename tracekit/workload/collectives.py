"""Infer the canonical names, message sizes and ranks of collectives from what torch.distributed recorded."""

import json
from typing import Any

import polars as pl

from tracekit.arrays import gather_rows, list_distinct, make_nulls
from tracekit.trace import RankTrace
from tracekit.workload.names.collective import DEEP_EP, EXPERT_EXCHANGE
from tracekit.workload.owners import find_innermost_ops
from tracekit.workload.parameters import ACCUMULATE_GRAD_OP
from tracekit.workload.signature import FLOAT_DTYPES, ITEM_BYTES, Signature

# nccl-tests' convention: the size of a collective is that of its whole buffer, which is the output of an all-gather
# and the input of everything else (nccl-tests, doc/PERFORMANCE.md).
SIZED_BY_OUTPUT = "all_gather"
# Ranks may send more than they receive, or less; links carry both directions at once, so the larger one counts.
SIZED_BY_LARGER = ("all_to_all", "send_recv")

COLLECTIVE_NAMES = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "_allgather_base": "all_gather",
    "all_gather": "all_gather",
    "allgather": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_to_allv": "all_to_all",
    "alltoall_base": "all_to_all",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "send": "send_recv",
    "recv": "send_recv",
}
ELEMENT_DTYPES = {
    "Float": "fp32",
    "Half": "fp16",
    "BFloat16": "bf16",
    "Double": "fp64",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Byte": "int8",
    "Char": "int8",
    "Bool": "bool",
    **dict.fromkeys(("Float8_e4m3fn", "Float8_e4m3fnuz", "Float8_e5m2", "Float8_e5m2fnuz"), "fp8"),
}
"""Element type by the type of a message as torch.distributed records it."""
ELEMENT_BYTES = {name: ITEM_BYTES[dtype] for name, dtype in ELEMENT_DTYPES.items()}
MESSAGE_PRECISIONS = {name: dtype for name, dtype in ELEMENT_DTYPES.items() if dtype in (*FLOAT_DTYPES, "int8")}
"""Precision by recorded type; integers other than int8 have none."""

# Kind of collective and index of the input that is the whole buffer, by the op that asked for it.
BUFFER_INPUTS = {
    "c10d::allreduce_": ("all_reduce", 0),
    "c10d::allreduce_coalesced_": ("all_reduce", 0),
    "c10d::broadcast_": ("broadcast", 0),
    "c10d::reduce_": ("reduce", 0),
    "c10d::_allgather_base_": ("all_gather", 0),
    "c10d::allgather_": ("all_gather", 0),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1),
    "c10d::alltoall_base_": ("all_to_all", 1),
    "c10d::alltoall_": ("all_to_all", 1),
    "c10d::allgather_into_tensor_coalesced_": ("all_gather", 0),
    "c10d::reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "symm_mem::multimem_all_reduce_": ("all_reduce", 0),
    "symm_mem::one_shot_all_reduce": ("all_reduce", 0),
    "symm_mem::two_shot_all_reduce_": ("all_reduce", 0),
    "_C_custom_ar::all_reduce": ("all_reduce", 1),
    "_C_custom_ar::all_reduce_reg": ("all_reduce", 1),
    "_C_custom_ar::all_reduce_unreg": ("all_reduce", 1),
    "sgl_kernel::all_reduce": ("all_reduce", 1),
}
KERNEL_NAME_PATTERNS = {
    r"AllReduce|(?i:all_?reduce)|cross_device_reduce": "all_reduce",
    r"AllGather|\ballgather_(?:lastdim|vec|naive)": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Kernel_Reduce_": "reduce",
    DEEP_EP: "all_to_all",
    EXPERT_EXCHANGE: "all_to_all",
    "reduce_scatter_cross_device": "reduce_scatter",
}
OP_NAME_PATTERNS = {
    r"(?i)all_?(?:to|2)_?all": "all_to_all",
    r"(?i)reduce_?scatter": "reduce_scatter",
    r"(?i)all_?gather": "all_gather",
    r"(?i)all_?reduce": "all_reduce",
    r"(?i)(?:^|:)_?broadcast_?(?:coalesced_?|oop)?$": "broadcast",
    r"(?i)(?:^|:)_?reduce_?(?:oop)?$": "reduce",
    r"(?i)(?:^|:)(?:i?(?:send|recv)_?(?:any_source_?)?|batch_isend_irecv)$": "send_recv",
}
"""Kinds by what an op, a mark or a recorded call is named, whoever's it is: ``vllm::all_reduce``, ``nccl:all_gather``,
``sglang::reg_all_gather_into_tensor``. They count where the kernel doesn't tell, as RCCL's generic one doesn't."""
TENSOR_OPS = r"^aten::"
"""Ops that compute on one GPU, whatever they are named (``aten::broadcast_tensors``)."""
FUNCTIONAL_PREFIX = "_c10d_functional::"
"""Prefix of ops that call those above with a list of tensors. A list's type isn't recorded; the wrapper's first input
has it."""

DEFAULT_ITEM_BYTES = 4
"""Bytes of an element of a list of tensors, whose type isn't recorded, unless the kernel's name has one."""

OP_PREFIX = "nccl:"
"""Prefix of the names that torch.distributed gives its calls."""
ALL_TO_ALL_OP = r"(?i)all_?(?:to|2)_?all"
"""Ops and marks around sends and receives that are an all-to-all."""

REDUCING_COLLECTIVES = ("all_reduce", "reduce_scatter", "reduce")

RECORDING_OP = "record_param_comms"
"""Op that runs inside the op that asked for the collective; its first input is the data that is sent."""


def describe_collectives(kernels: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    """Set ``collective``, ``bytes``, ``ranks`` and ``dtype`` on the rows of collectives, and what their op is called.

    Args:
        kernels: Table with the sizes that torch.distributed recorded, and ``op_row``.
        trace: What the rank recorded: where sizes weren't, its ops have the buffers' shapes, and marks tell exchanges.
    """
    if "collective" not in list_distinct(kernels["family"]):
        return _describe_none(kernels)
    is_collective = pl.col("family") == "collective"
    name = pl.col("collective").replace(COLLECTIVE_NAMES)
    nelems = (
        pl.when(name == SIZED_BY_OUTPUT)
        .then("out_nelems")
        .when(name.is_in(SIZED_BY_LARGER))
        .then(pl.max_horizontal("in_nelems", "out_nelems"))
        .otherwise("in_nelems")
    )
    size = nelems * pl.col("collective_dtype").replace_strict(ELEMENT_BYTES, default=None, return_dtype=pl.Int64)
    told = kernels.join(
        _infer_buffers(kernels, trace.ops, trace.annotations), on="op_row", how="left", maintain_order="left"
    )
    told = told.with_columns(from_gradients=pl.col("guessed").fill_null(False) & _is_grid_order_consistent(told))
    buffer = pl.when(pl.col("from_gradients") | ~pl.col("guessed").fill_null(False)).then("buffer_bytes")
    recorded_dtype = pl.col("collective_dtype").replace_strict(MESSAGE_PRECISIONS, default=None, return_dtype=pl.String)
    by_kernel = pl.col("name").replace_strict(
        _infer_kinds_from_names(kernels.filter(is_collective)), default=None, return_dtype=pl.String
    )
    collective = pl.when(is_collective).then(pl.coalesce(name, "asked_for", by_kernel, "named"))
    given = pl.coalesce(buffer, pl.when(collective == pl.col("named")).then("named_bytes"))
    recorded = is_collective & (pl.col("op") == RECORDING_OP)
    return told.with_columns(
        collective=collective,
        op=pl.when(recorded & collective.is_not_null()).then(OP_PREFIX + collective).otherwise("op"),
        bytes=pl.when(is_collective).then(pl.coalesce(size, given)).otherwise("bytes"),
        ranks=pl.when(is_collective).then("group_size"),
        dtype=pl.when(is_collective & recorded_dtype.is_not_null()).then(recorded_dtype).otherwise("dtype"),
    ).drop("asked_for", "buffer_bytes", "guessed", "named", "named_bytes")


def _describe_none(kernels: pl.DataFrame) -> pl.DataFrame:
    """Set the columns of a table without a collective."""
    columns = {column.name: column for column in kernels.get_columns()} | {
        "from_gradients": pl.Series("from_gradients", [False]).new_from_index(0, kernels.height),
        "collective": make_nulls("collective", kernels.height, pl.String),
        "ranks": make_nulls("ranks", kernels.height),
    }
    return pl.DataFrame(list(columns.values()))


def _infer_kinds_from_names(collectives: pl.DataFrame) -> dict[str, str | None]:
    """Infer the kind of collective from each kernel's name."""
    name = pl.col("name")
    words = [pl.when(name.str.contains(word)).then(pl.lit(kind)) for word, kind in KERNEL_NAME_PATTERNS.items()]
    names = collectives.select("name").unique()
    return dict(names.select("name", kind=pl.coalesce(*words)).iter_rows())


def _is_grid_order_consistent(told: pl.DataFrame) -> bool:
    """Return whether no bucket is larger than one that got more channels.

    The bytes of a bucket are guessed from the gradients between two all-reduces. The guess is wrong if buckets fill out
    of turn, as in the first steps of a job.
    """
    guessed = told.select("guessed", "blocks", "buffer_bytes").filter("guessed").drop_nulls()
    buckets = guessed.group_by("blocks")
    sizes = buckets.agg(least=pl.col("buffer_bytes").min(), most=pl.col("buffer_bytes").max()).sort("blocks")
    return bool((sizes["most"].shift(1).cum_max() <= sizes["least"]).fill_null(True).all())


def _infer_buffers(kernels: pl.DataFrame, ops: pl.DataFrame, annotations: pl.DataFrame) -> pl.DataFrame:
    """Infer the buffer of each ``op_row`` that launched a collective without a recorded size.

    Returns:
        ``asked_for`` (kind of collective), ``buffer_bytes``, and ``guessed``: whether the bytes are those of the
        gradients before it. ``named`` is the kind that the innermost op or mark around it is named after, and
        ``named_bytes`` the buffer that this op was given.
    """
    unsized = (pl.col("family") == "collective") & pl.col("in_nelems").is_null() & pl.col("op_row").is_not_null()
    launched = kernels.filter(unsized).group_by("op_row").agg(pl.first("dtype"), kernel=pl.first("name")).sort("op_row")
    owners = ops[launched["op_row"]]
    askers = ops.filter(pl.col("name").is_in(list(BUFFER_INPUTS)))
    functional = ops.filter(pl.col("name").str.starts_with(FUNCTIONAL_PREFIX))
    asker, wrapper = find_innermost_ops(owners, askers), find_innermost_ops(owners, functional)
    spans = pl.concat([table.select("name", "ts_ns", "dur_ns", "pid", "tid") for table in (ops, annotations)])
    exchange = find_innermost_ops(owners, spans.filter(pl.col("name").str.contains(ALL_TO_ALL_OP)))
    named = _find_named_kinds(owners, ops, annotations)
    asked = launched.with_columns(
        owners["name", "input_dims", "input_types"],
        asker=gather_rows(askers["name"], asker),
        asker_ts=gather_rows(askers["ts_ns"], asker),
        asker_dims=gather_rows(askers["input_dims"], asker),
        asker_types=gather_rows(askers["input_types"], asker),
        wrapper_types=gather_rows(functional["input_types"], wrapper),
        exchanges=exchange.is_not_null(),
        named=named["kind"],
        named_bytes=named["bytes"],
    )
    buckets = find_gradient_buckets(ops)
    rows = [(row["op_row"], *_infer_buffer(row, buckets)) for row in asked.iter_rows(named=True)]
    schema = {"op_row": pl.Int64, "asked_for": pl.String, "buffer_bytes": pl.Int64, "guessed": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row").hstack(asked.select("named", "named_bytes"))


def _find_named_kinds(owners: pl.DataFrame, ops: pl.DataFrame, annotations: pl.DataFrame) -> pl.DataFrame:
    """Find the ``kind`` of collective that the innermost op or mark around each op is named after, and its ``bytes``.

    A recorded call names the collective among its values. An all-gather is given a rank's part of its buffer only.
    """
    inputs = ("input_dims", "input_types", "concrete_inputs")
    marks = annotations.select("name", "ts_ns", "dur_ns", "pid", "tid").with_columns(
        pl.lit(None, pl.String).alias(name) for name in inputs
    )
    spans = pl.concat([ops.select(*marks.columns), marks]).filter(~pl.col("name").str.contains(TENSOR_OPS))
    kinds = spans["name"].unique()
    by_name = pl.col("name").replace_strict(kinds, _infer_named_kinds(kinds), default=None, return_dtype=pl.String)
    spans = spans.with_columns(kind=pl.coalesce(by_name, _find_recorded_kind())).drop_nulls("kind")
    inner = find_innermost_ops(owners, spans)
    found = spans.select(gather_rows(spans[name], inner) for name in ("kind", "input_dims", "input_types"))
    given = [
        None if kind == SIZED_BY_OUTPUT else _compute_first_tensor_bytes(dims, types)
        for kind, dims, types in found.iter_rows()
    ]
    return found.select("kind", bytes=pl.Series(given, dtype=pl.Int64))


def _infer_named_kinds(names: pl.Series) -> pl.Series:
    words = [pl.when(pl.col("name").str.contains(word)).then(pl.lit(kind)) for word, kind in OP_NAME_PATTERNS.items()]
    return pl.DataFrame({"name": names}).select(pl.coalesce(*words))[:, 0]


def _find_recorded_kind() -> pl.Expr:
    """The kind that a call of torch.distributed recorded among its values, as one of them."""
    quoted = [rf'"({name})"' for name in COLLECTIVE_NAMES]
    words = [pl.col("concrete_inputs").str.extract(word) for word in quoted]
    return pl.when(pl.col("name") == RECORDING_OP).then(pl.coalesce(*words).replace(COLLECTIVE_NAMES))


def _compute_first_tensor_bytes(dims: str | None, types: str | None) -> int | None:
    """Compute the bytes of the first input that is a tensor or a list of them."""
    inputs = len(json.loads(types)) if types else 0
    sizes = (_compute_input_bytes(dims, types, index) for index in range(inputs))
    return next((size for size in sizes if size), None)


def _infer_buffer(row: dict[str, Any], buckets: dict[int, int]) -> tuple[str | None, int | None, bool]:
    asked = row["asker"] is not None
    sent = "all_to_all" if row["exchanges"] and "SendRecv" in row["kernel"] else None
    kind, index = BUFFER_INPUTS[row["asker"]] if asked else (sent, 0)
    types = row["asker_types"]
    if types and row["wrapper_types"]:
        types = types.replace("TensorList", json.loads(row["wrapper_types"])[0])
    # Collectives that don't reduce move bytes; a type in their kernel's name doesn't count.
    item = ITEM_BYTES.get(row["dtype"], DEFAULT_ITEM_BYTES) if kind in REDUCING_COLLECTIVES else DEFAULT_ITEM_BYTES
    size = _compute_input_bytes(row["asker_dims"], types, index, item) if asked else None
    if size is not None and kind in SIZED_BY_LARGER:
        size = max(size, _compute_input_bytes(row["asker_dims"], types, 0, item) or 0)
    gathers = SIZED_BY_OUTPUT in (kind, row["named"]) or "AllGather" in row["kernel"]
    if size is None and row["name"] == RECORDING_OP and not gathers:
        size = _compute_input_bytes(row["input_dims"], row["input_types"], 0, item)
    if size is None and row["asker"] == "c10d::allreduce_" and asked:
        return kind, buckets.get(row["asker_ts"]), True
    return kind, size, False


def _compute_input_bytes(dims: str | None, types: str | None, index: int, item: int = DEFAULT_ITEM_BYTES) -> int | None:
    """Compute the bytes of one input, or of all tensors of a list; elements of unknown type have ``item`` bytes."""
    tensors = Signature.parse("", dims, types, None).get_tensors(index) if dims and types else []
    return sum(tensor.compute_bytes(item) for tensor in tensors) if tensors else None


def find_gradient_buckets(ops: pl.DataFrame) -> dict[int, int]:
    """Return the bytes of the gradients that each DDP all-reduce sends, by the all-reduce's start in ns.

    DDP sends a bucket as soon as its last gradient is ready. The bucket therefore holds the gradients since the
    previous all-reduce:

        grad a   grad b   all-reduce   grad c   all-reduce
        |------ a + b ------>|         |-- c ---->|
    """
    gradient = pl.col("name") == ACCUMULATE_GRAD_OP
    events = ops.filter(gradient & pl.col("input_dims").is_not_null() | (pl.col("name") == "c10d::allreduce_"))
    waiting: dict[tuple[int, int], int] = {}
    buckets: dict[int, int] = {}
    chosen = events.sort("ts_ns").select("ts_ns", "pid", "tid", "name", "input_dims", "input_types")
    for ts_ns, pid, tid, name, dims, types in chosen.iter_rows():
        if name == ACCUMULATE_GRAD_OP:
            waiting[pid, tid] = waiting.get((pid, tid), 0) + (_compute_input_bytes(dims, types, 0) or 0)
        elif size := waiting.pop((pid, tid), 0):
            buckets[ts_ns] = size
    return buckets


KERNEL_PATTERN = r"(?i)^(?:void )?(?:nccl|rccl).*send_?recv|ncclDevKernel_Generic"
THREAD = ("pid", "tid")
GROUP_COLUMNS = ("group_size", "process_group", "group_description", "group_ranks")
FILLED_COLUMNS = ("collective", "collective_dtype", "in_nelems", "out_nelems", "sender", "receiver", *GROUP_COLUMNS)


def fill_grouped_sends(kernels: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    """Fill in what a kernel sends and receives, where the messages were noted before its launch.

    The activities have ``call``, ``op_row`` and the columns of collectives.
    """
    if RECORDING_OP not in list_distinct(trace.ops["name"]):
        return kernels
    messages = _list_queued_messages(kernels, trace.ops)
    if messages.is_empty():
        return kernels
    unsized = kernels.with_row_index("kernel").filter(
        pl.col("name").str.contains(KERNEL_PATTERN), pl.col("in_nelems").is_null(), pl.col("call").is_not_null()
    )
    if unsized.is_empty():
        return kernels
    launches = unsized.select("kernel").hstack(trace.calls["ts_ns", *THREAD][unsized["call"].to_list()])
    joined = messages.sort("ts_ns").join_asof(
        launches.sort("ts_ns"), on="ts_ns", by=THREAD, strategy="forward", check_sortedness=False
    )
    found = joined.drop_nulls("kernel").group_by("kernel").agg(*_sum_messages(), *_find_pair(trace.rank or 0))
    filled = kernels.select(kernel=pl.int_range(pl.len(), dtype=pl.UInt32)).join(
        found, on="kernel", how="left", maintain_order="left"
    )
    return kernels.with_columns(
        pl.coalesce(filled[column].cast(kernels[column].dtype), kernels[column]) for column in FILLED_COLUMNS
    )


def _list_queued_messages(kernels: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """List the noted sends and receives that launched no kernel of their own."""
    noted = ops.with_row_index("op_row").filter(
        pl.col("name") == RECORDING_OP, pl.col("collective").is_in(["send", "recv"])
    )
    return noted.join(kernels.select(pl.col("op_row").cast(pl.UInt32)).unique(), on="op_row", how="anti")


def _sum_messages() -> list[pl.Expr]:
    """Sum the messages of a group by direction, in elements of the first message's type."""
    item = pl.col("collective_dtype").replace_strict(ELEMENT_BYTES, default=ITEM_BYTES["fp32"], return_dtype=pl.Int64)
    size = pl.max_horizontal("in_nelems", "out_nelems") * item
    totals = (
        (size.filter(pl.col("collective") == way).sum() // item.first()).alias(column)
        for way, column in (("send", "in_nelems"), ("recv", "out_nelems"))
    )
    return [pl.lit("send").alias("collective"), pl.first("collective_dtype", *GROUP_COLUMNS), *totals]


def _find_pair(rank: int) -> tuple[pl.Expr, pl.Expr]:
    """Find who sends and who receives, if all messages of a group have one peer; the lower rank first in both ways."""
    way, peer = pl.col("collective"), pl.coalesce("sender", "receiver")
    is_pair = (peer.n_unique() == 1) & peer.is_not_null().all()
    has_both = way.n_unique() == 2
    sender = (
        pl.when(has_both).then(pl.min_horizontal(peer.first(), rank)).when((way == "recv").all()).then(peer.first())
    )
    receiver = (
        pl.when(has_both).then(pl.max_horizontal(peer.first(), rank)).when((way == "send").all()).then(peer.first())
    )
    return pl.when(is_pair).then(sender).alias("sender"), pl.when(is_pair).then(receiver).alias("receiver")
