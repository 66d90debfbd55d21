"""Whether the kernels' work is known: the GPU, shapes, ops, sizes of collectives."""

import polars as pl

from tracekit.doctor import recipe
from tracekit.doctor.model import Case, Check, Status, by_cost
from tracekit.ingest.captured import LAUNCHES_GRAPH
from tracekit.units import many
from tracekit.workload.extract import has_work

CAPTURE = (
    "give the trace of the capture too (vLLM: capture_torch_profiler, SGLang: --enable-profile-cuda-graph), or record "
    "some steps without graphs (enforce_eager, --disable-cuda-graph)"
)


def gpu(case: Case) -> Check:
    """Fails if it can't be told which GPU the trace was recorded on."""
    name, title = "gpu", "GPU"
    if case.run.source is not None:
        known = case.run.source
        return Check(name, title, Status.OK, f"{known.query or 'blank name'!r}, taken as {known.gpu.slug}")
    cost = case.step_share(~has_work())
    return Check(
        name,
        title,
        Status.FAIL,
        (case.run.doubt or "not described (no deviceProperties)").partition(". ")[0],
        f"{cost:.0f} % of the step, its kernels without known work, stays as measured on any GPU",
        cost,
        "say it with --source-gpu NAME (`tracekit gpus` lists them)",
    )


def shapes(case: Case) -> Check:
    """Warns if the profiler recorded no shapes."""
    name, title, ops = "shapes", "Shapes", case.rank.ops
    if case.rank.shapes_recorded:
        part = 100 * ops["input_dims"].count() / ops.height
        return Check(name, title, Status.OK, f"recorded on {part:.0f} % of {ops.height:,} ops")
    cost = case.step_share(~has_work() & (pl.col("family") != "collective"))
    return Check(
        name,
        title,
        by_cost(cost, warn=0),
        "not recorded",
        f"{cost:.0f} % of the step is scaled by kernel class instead of modelled from its work",
        cost,
        recipe.SHAPES,
        recipe.SHAPES,
    )


def known_ops(case: Case) -> Check | None:
    """Warns about ops whose shapes are recorded, but whose work tracekit can't count."""
    if not case.rank.shapes_recorded:
        return None
    unknown = ~has_work() & (pl.col("family") != "collective") & ~_in_graph(case)
    cost = case.step_share(unknown)
    status = by_cost(cost)
    evidence = f"{case.gpu_share(has_work()):.0f} % of GPU time has known work"
    if status is Status.OK:
        return Check("known_ops", "Known ops", status, evidence)
    times = case.kernels.filter(unknown).group_by("op").agg(pl.col("dur_ns").sum())
    largest = [op or "kernels without an op" for op in times.sort("dur_ns", "op", descending=True)["op"].head(3)]
    return Check(
        "known_ops",
        "Known ops",
        status,
        f"{evidence}; the most without: {', '.join(largest)}",
        f"{cost:.0f} % of the step is scaled by kernel class instead of modelled",
        cost,
    )


def graphs(case: Case) -> Check | None:
    """Warns about kernels of CUDA graphs, which belong to no op but those of the capture."""
    in_graph = _in_graph(case)
    kernels = case.kernels.filter(in_graph)
    if kernels.is_empty():
        return None
    cost = case.step_share(in_graph & ~has_work())
    launches = kernels["call"].n_unique()
    captured = case.rank.captured
    ops = f"the capture tells the ops of {captured.launched_by.count():,}" if captured else "nothing tells their ops"
    return Check(
        "graphs",
        "Graphs",
        by_cost(cost),
        f"{many(kernels.height, 'kernel')} out of {many(launches, 'graph launch')}; {ops}",
        f"{cost:.0f} % of the step has no shapes of its own: scaled by kernel class",
        cost,
        "" if captured else CAPTURE,
    )


def collective_sizes(case: Case) -> Check | None:
    """Warns about collectives whose message sizes aren't recorded."""
    collective = pl.col("family") == "collective"
    kernels = case.kernels.filter(collective)
    if kernels.is_empty():
        return None
    unsized = collective & pl.col("bytes").is_null()
    count = kernels["bytes"].null_count()
    cost = case.step_share(unsized)
    ok = count == 0
    return Check(
        "collective_sizes",
        "Collectives",
        Status.OK if ok else by_cost(cost),
        f"{kernels.height - count:,} of {kernels.height:,} have a message size",
        f"{cost:.0f} % of the step is communication of unknown size",
        cost,
        "record CPU ops with torch 2.2 or later: they note every collective's size",
    )


def _in_graph(case: Case) -> pl.Expr:
    calls = case.rank.calls["name"].str.contains(LAUNCHES_GRAPH)
    rows = calls.arg_true().cast(pl.Int64)
    return pl.col("call").is_in(rows.implode()).fill_null(False)
