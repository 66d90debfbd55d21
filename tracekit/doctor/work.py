"""Checks of the kernels' work: GPU, shapes, ops, sizes of collectives."""

import polars as pl

from tracekit.doctor import recipe
from tracekit.doctor.model import Check, CheckContext, Status, grade_cost
from tracekit.format import format_quantity
from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS
from tracekit.workload.kernel_table import has_work

CAPTURE_ADVICE = (
    "give the trace of the capture too (vLLM: capture_torch_profiler, SGLang: --enable-profile-cuda-graph), or record "
    "some steps without graphs (enforce_eager, --disable-cuda-graph)"
)


def check_gpu(context: CheckContext) -> Check:
    """Fail if the GPU that the trace was recorded on can't be identified."""
    name, title = "gpu", "GPU"
    if context.run.source is not None:
        known = context.run.source
        return Check(name, title, Status.OK, f"{known.query or 'blank name'!r}, taken as {known.gpu.slug}")
    cost = context.compute_step_pct(~has_work())
    return Check(
        name,
        title,
        Status.FAIL,
        str(context.run.source_doubt or "not described (no deviceProperties)").partition(". ")[0],
        f"{cost:.0f} % of the step, its kernels without known work, stays as measured on any GPU",
        cost,
        "say it with --source-gpu NAME (`tracekit gpus` lists them)",
    )


def check_shapes(context: CheckContext) -> Check:
    """Warn if the profiler recorded no shapes."""
    name, title, ops = "shapes", "Shapes", context.rank.ops
    if context.rank.has_shapes:
        part = 100 * ops["input_dims"].count() / ops.height
        return Check(name, title, Status.OK, f"recorded on {part:.0f} % of {ops.height:,} ops")
    cost = context.compute_step_pct(~has_work() & (pl.col("family") != "collective"))
    return Check(
        name,
        title,
        grade_cost(cost, warn=0),
        "not recorded",
        f"{cost:.0f} % of the step is scaled by kernel class instead of modelled from its work",
        cost,
        recipe.SHAPES,
        recipe.SHAPES,
    )


def check_known_ops(context: CheckContext) -> Check | None:
    """Warn about ops with recorded shapes whose work tracekit can't count."""
    if not context.rank.has_shapes:
        return None
    unknown = ~has_work() & (pl.col("family") != "collective") & ~_select_graph_kernels(context)
    cost = context.compute_step_pct(unknown)
    status = grade_cost(cost)
    evidence = f"{context.compute_gpu_pct(has_work()):.0f} % of GPU time has known work"
    if status is Status.OK:
        return Check("known_ops", "Known ops", status, evidence)
    times = context.kernels.filter(unknown).group_by("op").agg(pl.col("dur_ns").sum())
    largest = [op or "kernels without an op" for op in times.sort("dur_ns", "op", descending=True)["op"].head(3)]
    return Check(
        "known_ops",
        "Known ops",
        status,
        f"{evidence}; the most without: {', '.join(largest)}",
        f"{cost:.0f} % of the step is scaled by kernel class instead of modelled",
        cost,
    )


def check_cuda_graphs(context: CheckContext) -> Check | None:
    """Warn about kernels of CUDA graphs, which have no op unless the capture was recorded."""
    in_graph = _select_graph_kernels(context)
    kernels = context.kernels.filter(in_graph)
    if kernels.is_empty():
        return None
    cost = context.compute_step_pct(in_graph & ~has_work())
    launches = kernels["call"].n_unique()
    captured = context.rank.captured
    ops = f"the capture tells the ops of {captured.call_row.count():,}" if captured else "nothing tells their ops"
    return Check(
        "graphs",
        "Graphs",
        grade_cost(cost),
        f"{format_quantity(kernels.height, 'kernel')} out of {format_quantity(launches, 'graph launch')}; {ops}",
        f"{cost:.0f} % of the step has no shapes of its own: scaled by kernel class",
        cost,
        "" if captured else CAPTURE_ADVICE,
    )


def check_collective_sizes(context: CheckContext) -> Check | None:
    """Warn about collectives without recorded message sizes."""
    collective = pl.col("family") == "collective"
    kernels = context.kernels.filter(collective)
    if kernels.is_empty():
        return None
    unsized = collective & pl.col("bytes").is_null()
    count = kernels["bytes"].null_count()
    cost = context.compute_step_pct(unsized)
    ok = count == 0
    return Check(
        "collective_sizes",
        "Collectives",
        Status.OK if ok else grade_cost(cost),
        f"{kernels.height - count:,} of {kernels.height:,} have a message size",
        f"{cost:.0f} % of the step is communication of unknown size",
        cost,
        "record CPU ops with torch 2.2 or later: they note every collective's size",
    )


def _select_graph_kernels(context: CheckContext) -> pl.Expr:
    calls = context.rank.calls["name"].str.contains(GRAPH_LAUNCH_CALLS)
    rows = calls.arg_true().cast(pl.Int64)
    return pl.col("call").is_in(rows.implode()).fill_null(False)
