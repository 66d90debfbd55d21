"""Checks of the kernels' work: GPU and its speed, shapes, ops, sizes of collectives."""

import polars as pl

from tracekit.analysis.kernel_doubts import measure_clock_speed
from tracekit.doctor import recipe
from tracekit.doctor.model import Check, CheckContext, Status, grade_cost, grade_cost_bound
from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS, is_whole_graph
from tracekit.messages import doctor_checks as told
from tracekit.parallelism.relayout import compute_seen_pct
from tracekit.workload.kernel_table import has_work
from tracekit.workload.step_kinds import compute_time_share


def check_gpu(context: CheckContext) -> Check:
    """Warn if the GPU that the trace was recorded on can't be identified: its measurements say nothing of others."""
    name, title = "gpu", "GPU"
    if context.run.source is not None:
        known = context.run.source
        slug = known.gpu.slug
        taken = told.GPU_TAKEN_AS(name=known.query, gpu=slug) if known.query else told.GPU_BLANK_TAKEN_AS(gpu=slug)
        return Check(name, title, Status.OK, taken)
    cost, kept = context.work_pct, context.compute_step_pct(~has_work())
    return Check(
        name,
        title,
        grade_cost(cost, warn=0),
        context.run.provenance.source_doubt or told.GPU_NOT_DESCRIBED(),
        told.GPU_MISSING_COST_KEPT(step_pct=cost, kept_pct=kept) if kept else told.GPU_MISSING_COST(step_pct=cost),
        cost,
        told.GPU_MISSING_FIX(),
    )


def check_recording(context: CheckContext) -> Check:
    """Fail for a captured program, of which nothing was measured, or only what a trace of it corrected."""
    program = context.run.program
    measured_pct = 0.0 if program.has_predicted_times else compute_seen_pct(program)
    return Check(
        "recording",
        "Recording",
        grade_cost(100 - measured_pct),
        told.RECORDING_MISSING(measured_pct=measured_pct),
        told.RECORDING_MISSING_COST(step_pct=100 - measured_pct),
        100 - measured_pct,
        told.RECORDING_MISSING_FIX(),
    )


def check_shapes(context: CheckContext) -> Check:
    """Warn if the profiler recorded no shapes."""
    name, title, ops = "shapes", "Shapes", context.rank.ops
    if context.rank.has_shapes:
        part = 100 * ops["input_dims"].count() / ops.height
        return Check(name, title, Status.OK, told.SHAPES_RECORDED(ops_pct=part, ops=ops.height))
    cost = context.compute_step_pct(~has_work() & (pl.col("family") != "collective") & ~is_whole_graph())
    return Check(
        name,
        title,
        grade_cost(cost, warn=0),
        told.SHAPES_MISSING(),
        told.SHAPES_MISSING_COST(step_pct=cost),
        cost,
        recipe.suggest(recipe.SHAPES),
        recipe.SHAPES,
    )


def check_known_ops(context: CheckContext) -> Check | None:
    """Warn about ops with recorded shapes whose work tracekit can't count."""
    if not context.rank.has_shapes:
        return None
    in_graph = _select_graph_kernels(context)
    unknown = ~has_work() & (pl.col("family") != "collective") & ~in_graph
    cost = context.compute_step_pct(unknown)
    status = grade_cost(cost)
    outside = context.kernels.filter(~in_graph)
    known_pct = compute_time_share(outside, "dur_ns", has_work())
    if status is Status.OK:
        has_graphs = outside.height < context.kernels.height
        known = told.WORK_KNOWN_OUTSIDE_GRAPHS if has_graphs else told.WORK_KNOWN
        return Check("known_ops", "Known ops", status, known(time_pct=known_pct)) if outside.height else None
    times = context.kernels.filter(unknown).group_by("op").agg(pl.col("dur_ns").sum())
    largest = [op or "kernels without an op" for op in times.sort("dur_ns", "op", descending=True)["op"].head(3)]
    return Check(
        "known_ops",
        "Known ops",
        status,
        told.WORK_KNOWN_EXCEPT(time_pct=known_pct, largest=largest),
        told.WORK_UNKNOWN_COST(step_pct=cost),
        cost,
    )


def check_cuda_graphs(context: CheckContext) -> Check | None:
    """Warn about CUDA graphs: their kernels have no op without the capture, or the graphs were recorded as a whole."""
    in_graph = _select_graph_kernels(context) | is_whole_graph()
    kernels = context.kernels.filter(in_graph)
    if kernels.is_empty():
        return None
    cost = context.compute_step_pct(in_graph & ~has_work())
    launches = kernels["call"].n_unique()
    captured = context.rank.captured
    counts = {"kernels": kernels.height, "launches": launches}
    evidence = told.GRAPH_KERNELS_WITHOUT_OPS(**counts)
    fix = None if captured else told.GRAPH_CAPTURE_FIX()
    if captured:
        evidence = told.GRAPH_KERNELS_CAPTURED(**counts, captured=captured.call_row.count())
    whole = kernels.filter(is_whole_graph()).height
    if whole:
        evidence, fix = told.GRAPHS_RECORDED_WHOLE(whole=whole, launches=launches), told.GRAPH_NODES_FIX()
    return Check(
        "graphs",
        "Graphs",
        grade_cost(cost),
        evidence,
        told.GRAPH_KERNELS_COST(step_pct=cost),
        cost,
        fix,
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
        told.COLLECTIVES_SIZED(sized=kernels.height - count, collectives=kernels.height),
        told.COLLECTIVES_UNSIZED_COST(step_pct=cost),
        cost,
        told.COLLECTIVES_UNSIZED_FIX(),
    )


def _select_graph_kernels(context: CheckContext) -> pl.Expr:
    calls = context.rank.calls["name"].str.contains(GRAPH_LAUNCH_CALLS)
    rows = calls.arg_true().cast(pl.Int64)
    return pl.col("call").is_in(rows.implode()).fill_null(False)


def check_gpu_speed(context: CheckContext) -> Check | None:
    """Warn if kernels of all families take longer than usual on this GPU."""
    found = measure_clock_speed(context.kernels, context.run.gpu) if context.run.gpu else None
    if found is None:
        return None
    cost = context.work_pct * (1 - 1 / found.median_ratio) if found.is_slow else 0.0
    fastest, slowest = found.families
    return Check(
        "speed",
        "GPU speed",
        grade_cost_bound(cost),
        told.GPU_SPEED(kernels=found.kernel_count, ratio=found.median_ratio),
        told.GPU_SPEED_COST(
            min_ratio=found.min_ratio,
            fastest_family=fastest,
            max_ratio=found.max_ratio,
            slowest_family=slowest,
            step_pct=cost,
        ),
        cost,
        told.GPU_SPEED_FIX(),
    )
