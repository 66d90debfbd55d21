"""Build the kernel table of a trace."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.kernels import add_law, complete_columns
from predictors.work import add_work
from tracekit import schema
from tracekit.arrays import Ints, find_nulls, gather_rows, list_distinct, make_nulls, number_pairs
from tracekit.ingest.correlations import KERNEL_LAUNCHES
from tracekit.rules import NO_RULES, Rule, RuleNames
from tracekit.trace import CapturedGraphs, RankTrace
from tracekit.workload import call_inputs, collectives, module_paths, op_work, parameters
from tracekit.workload import steps as step_table
from tracekit.workload.op_work import COMPUTE_FAMILIES, GENERIC_FAMILIES, classify_activity, classify_op
from tracekit.workload.owners import find_innermost_ops
from tracekit.workload.parameters import fill_stored_weights
from tracekit.workload.work_inference import apply_direction_rules, apply_work_rules
from tracekit.workload.work_inference.gemms import list_recurrent_gemms, number_op_gemms


def build_kernel_table(
    trace: RankTrace, steps: pl.DataFrame | None = None, without: RuleNames = NO_RULES
) -> pl.DataFrame:
    """Build the kernel table: one row per GPU activity, with its launch and its work (``schema.KERNELS``).

    Rows keep the order of ``trace.activities``. The forms of a kernel on the way::

        activity -> with its call, op and step -> with the work of its call -> with its share, and where that is from
                              |                        ^                           |
                              +-> each distinct call --+                           +-> work inferred from others

    Without ``steps`` those count that the trace's own marks tell; rules ``without`` are off.
    """
    owned = _join_owners(trace, step_table.find_steps(trace) if steps is None else steps, without)
    calls = owned.lazy().select(op_work.CALL_COLUMNS).unique().collect()
    work_of = op_work.compute_work_of_calls(calls, trace.indices)
    # A lazy join leaves the columns in unlike pieces, and the next step would copy all of them.
    described = owned.join(
        work_of, on=op_work.CALL_COLUMNS, how="left", nulls_equal=True, maintain_order="left", suffix="_of_call"
    ).with_columns(bytes=pl.coalesce("bytes", "bytes_of_call"))
    named = collectives.describe_collectives(collectives.fill_grouped_sends(described, trace), trace)
    directed = apply_direction_rules(named, trace, without)
    told = directed.with_columns(share=_compute_share(), work_from=_classify_work_source())
    known = fill_stored_weights(apply_work_rules(told, trace, without))
    return schema.KERNELS.conform(known.with_columns(phase=module_paths.classify_phase("launched_in")))


def has_work() -> pl.Expr:
    """Return whether a kernel's work is known: its dimensions, or the bytes it moves."""
    product = pl.all_horizontal(pl.col("m", "n", "k").is_not_null())
    return product | pl.any_horizontal(pl.col("q_len", "bytes", "inter").is_not_null())


def _classify_work_source() -> pl.Expr:
    sized = pl.col("kind").is_in(["memcpy", "memset"]) | (pl.col("family") == "collective")
    return (
        pl.when(has_work() & pl.col("from_gradients"))
        .then(pl.lit("gradients"))
        .when(has_work() & sized)
        .then(pl.lit("recorded"))
        .when(has_work())
        .then(pl.lit("shapes"))
    )


def _join_owners(trace: RankTrace, steps: pl.DataFrame, without: RuleNames) -> pl.DataFrame:
    """Join the activities to the call, op and step that launched them, and to that op's inputs."""
    call = trace.launches.call
    op_of_call = find_innermost_ops(trace.calls, trace.ops)
    op_row = gather_rows(op_of_call, call)
    columns = _gather_op_columns(trace.ops, op_row)
    captured_row = make_nulls("captured_row", trace.activities.height)
    if trace.captured is not None:
        captured = trace.captured
        captured_row = gather_rows(find_innermost_ops(captured.calls, captured.ops), captured.call_row)
        replayed = captured_row.is_not_null()
        op_row = op_row.set(replayed, None)
        others = _gather_op_columns(captured.ops, captured_row)
        columns = {name: others[name].zip_with(replayed, values) for name, values in columns.items()}
        columns |= _fill_captured_grids(trace.activities, captured)
    module, line = module_paths.find_launch_sites(trace, call)
    recorded = [pl.coalesce(column.name, columns.pop(column.name)) for column in schema.COLLECTIVE_COLUMNS]
    owned = trace.activities.with_columns(
        *recorded,
        call=call,
        op_row=op_row,
        captured_row=captured_row,
        step=_assign_steps(trace, call, steps),
        launched_in=module_paths.find_launch_phases(trace, call),
        module=pl.coalesce(module, "module_fqn"),
        python_line=line,
        **columns,
    )
    if CONTRADICTED_NAMES_RULE.is_on(without):
        owned = replace_contradicted_names(owned, op_of_call, trace.calls)
    return (
        owned.pipe(number_op_gemms)
        .pipe(list_recurrent_gemms)
        .with_columns(elements=parameters.infer_list_elements(parameters.count_elements_by_blocks(trace.ops)))
    )


def _gather_op_columns(ops: pl.DataFrame, rows: pl.Series) -> dict[str, pl.Series]:
    """Gather the columns of the ops that own the activities, by column name."""
    columns = (ops[column.name] for column in (*schema.OP_INPUT_COLUMNS, *schema.COLLECTIVE_COLUMNS))
    named = (
        ops["name"].alias("op"),
        call_inputs.infer_output_shapes(ops),
        call_inputs.infer_quantised_dtypes(ops),
        *call_inputs.find_forward_inputs(ops),
        *columns,
    )
    return {values.name: gather_rows(values, rows) for values in named}


def _fill_captured_grids(activities: pl.DataFrame, captured: CapturedGraphs) -> dict[str, pl.Series]:
    """Return the activities' grids; kernels of CUDA graphs, recorded without a grid, get that of the captured call."""
    noted = {name: activities[name] for name in ("blocks", "threads_per_block")}
    return {
        name: values.zip_with(values.is_not_null(), gather_rows(captured.calls[name], captured.call_row))
        for name, values in noted.items()
    }


def _assign_steps(trace: RankTrace, call: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """Return the step that launched each activity; a trace without step marks is one step for all activities."""
    if step_table.is_whole_trace(steps):
        return pl.Series([step_table.WHOLE_TRACE_STEP]).new_from_index(0, trace.activities.height)
    return step_table.assign_steps(gather_rows(trace.calls["ts_ns"], call), steps)


def _compute_share() -> pl.Expr:
    """Compute each kernel's share of its op's work: the kernels that do it together split it by their measured times.

    This applies to split-K GEMMs, and to any op on a tensor too large for 32-bit indexing, which PyTorch runs in
    pieces.
    """
    owned = pl.any_horizontal(pl.col("op_row", "captured_row").is_not_null())
    # Every replay of a CUDA graph runs its captured ops once.
    owner = pl.struct("op_row", "captured_row", pl.when(pl.col("captured_row").is_not_null()).then("call"))
    together = pl.col("shares"), owned, pl.col("family") != "collective", has_work()
    part = pl.col("dur_ns") / pl.col("dur_ns").sum().over(owner, "family", "direction", "shares")
    return pl.when(*together, part.is_finite()).then(part).otherwise(1.0)


CONTRADICTED_NAMES_RULE = Rule(
    "op-over-name",
    "Where all kernels of an op have a name that also serves ops of another kind, and can't be its own, the op counts.",
    "ROCm's profiler wrote the last kernel's name on all (rocm-systems 9697): GEMMs read as clamps, 26 % too slow on "
    "an H100.",
)
"""Such kernels::

    aten::mm     clamp_kernel      is a GEMM, whatever it is called
    aten::relu   clamp_kernel      may well be it
"""
REPLACED_NAME = r"^(?:elementwise )?kernel of "
_OWN_FAMILIES = (*COMPUTE_FAMILIES, "norm", "softmax")
"""Families of ops that have a kernel of their own family among theirs, or one without a family."""
_POINTWISE_OP = (
    r"^aten::(?:relu|gelu|silu|sigmoid|tanh|add|sub|mul|div|neg|exp|log|sqrt|rsqrt|pow|abs|clamp|clamp_min|where|"
    r"threshold_backward|gelu_backward|silu_backward|sigmoid_backward|tanh_backward|native_dropout|bernoulli|fill|zero|"
    r"copy|cat|clone)_?$"
)
_OP_KEY = ("op_row", "captured_row")


def replace_contradicted_names(owned: pl.DataFrame, call_op_row: pl.Series, calls: pl.DataFrame) -> pl.DataFrame:
    """Name kernels after their op where their own name can't be right.

    The activities have ``op``, ``op_row``, ``captured_row`` and ``input_dims``; ``call_op_row`` is the op of each call.
    """
    launched = owned.lazy().filter(kind="kernel").drop_nulls("op")
    pairs = launched.select("name", "op").unique().with_columns(_contradicts()).collect()
    if not pairs["contradicts"].any():
        return owned
    kernels, doubtful = launched.collect(), pairs.filter("contradicts")
    served = pairs.group_by("name").agg(kinds=pl.col("kind_of_op").n_unique())
    doubtful = doubtful.join(served.filter(pl.col("kinds") > 1), on="name", how="semi")
    marked = kernels.join(doubtful.select("name", "op", wrong=True), on=("name", "op"), how="left")
    whole = marked.group_by(_OP_KEY).agg(pl.col("wrong").fill_null(value=False).all(), pl.len())
    launches = calls.select(op_row=call_op_row).filter(calls["name"].str.contains(KERNEL_LAUNCHES))
    of_op = launches.drop_nulls().group_by("op_row").agg(launches=pl.len())
    whole = whole.filter("wrong").join(of_op, on="op_row", how="left")
    whole = whole.filter(pl.col("launches").fill_null(pl.col("len")) <= pl.col("len"))
    is_wrong = pl.struct(_OP_KEY).is_in(whole.select(pl.struct(_OP_KEY)).to_series().implode())
    pointwise = pl.col("op").str.contains(_POINTWISE_OP) & pl.col("op").is_in(["aten::copy_", "aten::cat"]).not_()
    name = (
        pl.when(pointwise).then(pl.format("elementwise kernel of {}", "op")).otherwise(pl.format("kernel of {}", "op"))
    )
    replaced = (pl.col("kind") == "kernel") & pl.col("input_dims").is_not_null() & is_wrong
    return owned.with_columns(name=pl.when(replaced).then(name).otherwise("name"))


def _contradicts() -> tuple[pl.Expr, pl.Expr]:
    """Return whether the op can't launch a kernel of this name only, and the kind of the op."""
    by_name = pl.col("name").map_elements(lambda name: classify_activity("kernel", name, None), pl.String)
    by_op = pl.col("op").map_elements(classify_op, pl.String, skip_nulls=False)
    is_pointwise = pl.col("op").str.contains(_POINTWISE_OP)
    compute = by_name.is_in(COMPUTE_FAMILIES)
    own = by_op.is_in(_OWN_FAMILIES) & (by_name != by_op) & (by_name != "other")
    alike = compute & by_op.is_in(COMPUTE_FAMILIES)
    generic = by_name.is_in(GENERIC_FAMILIES) & by_op.is_in(["norm", "softmax"])
    foreign = is_pointwise & ~by_name.is_in([*GENERIC_FAMILIES, "other"])
    kind = pl.when(is_pointwise).then(pl.lit("pointwise")).otherwise(pl.coalesce(by_op, "op"))
    return ((own & ~alike & ~generic) | foreign).fill_null(value=False).alias("contradicts"), kind.alias("kind_of_op")


PRECISION_RULE = Rule(
    "tf32",
    "A kernel with fp32 inputs that exceeds the GPU's fp32 peak ran on tensor cores (TF32).",
    "The peak of the GPU: fp32 arithmetic can't be faster.",
)
TENSOR_CORE_FAMILIES = ("gemm", "conv", "attention", "linear_attention")
PEAK_TOLERANCE = 1.02
TIMER_RESOLUTION_US = 1.0
"""Resolution of a kernel's time: older profilers truncate to whole microseconds."""
FAST_ALGORITHM_KERNEL = r"(?i)winograd|sp3asm|fft"


def detect_tf32(kernels: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """Set ``tf32`` on the kernels that ran faster than fp32 arithmetic allows.

    A kernel's name may have no arithmetic type, and the inputs are fp32 either way. One launch above the fp32 peak of
    ``gpu`` proves TF32 for all kernels of that name, if that kernel did its op's work alone. Convolutions by Winograd
    or FFT need fewer multiplications than their shapes imply, so they prove nothing.

    The table holds times as measured on ``gpu``; without TF32 support nothing changes.
    """
    return mark_tf32(kernels, find_tf32_names(kernels, gpu))


def find_tf32_names(kernels: pl.DataFrame, gpu: Gpu) -> list[str]:
    """Find the names of kernels of which one launch ran faster than fp32 arithmetic allows; arguments as above."""
    peak = gpu.peak_flops("fp32")
    if not gpu.supports("tf32") or peak is None or "fp32" not in list_distinct(kernels["dtype"]):
        return []
    flops = add_work(add_law(complete_columns(kernels)))["work_flops"]
    seconds = (pl.col("dur_ns") / 1e3 + TIMER_RESOLUTION_US) / 1e6
    alone = pl.col("share") == 1
    fast = kernels.with_columns(flops=flops).filter(
        _may_be_tf32() & alone & (pl.col("flops") / seconds > PEAK_TOLERANCE * peak)
    )
    return fast["name"].unique().to_list()


def mark_tf32(kernels: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Set ``tf32`` on the matrix kernels of some names."""
    if not names:
        return kernels
    matrix = _may_be_tf32() & pl.col("name").is_in(list(names))
    return kernels.with_columns(dtype=pl.when(matrix).then(pl.lit("tf32")).otherwise("dtype"))


def _may_be_tf32() -> pl.Expr:
    single = pl.col("family").is_in(TENSOR_CORE_FAMILIES) & (pl.col("dtype") == "fp32")
    return single & ~pl.col("name").str.contains(FAST_ALGORITHM_KERNEL)


def number_gpus(kernels: pl.DataFrame) -> Ints:
    """Number the GPU of each kernel among those of its rank, from 0; 0 where the trace doesn't tell."""
    known = np.flatnonzero(~find_nulls(kernels["device"]))
    (gpu,) = number_pairs([kernels], "rank", "device")
    used, first, code = np.unique(gpu[known], return_index=True, return_inverse=True)
    rank = kernels["rank"].to_numpy()[known][first]
    number = np.zeros(kernels.height, dtype=np.int64)
    number[known] = (np.arange(used.size) - np.searchsorted(rank, rank))[code]
    return number


def count_gpus_per_rank(kernels: pl.DataFrame) -> int:
    """Count the GPUs that a rank drives, of several ranks the one that drives most; at least 1."""
    return int(number_gpus(kernels).max(initial=0)) + 1
