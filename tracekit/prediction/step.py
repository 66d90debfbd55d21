"""What a traced step would take on other GPUs: every kernel predicted, then the graph replayed with those times."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl

import predictors
from predictors import resolve_gpu
from predictors.intervals import total
from tracekit import calibration
from tracekit.comm import ClusterError
from tracekit.prediction import notes
from tracekit.prediction.collectives import retarget
from tracekit.prediction.layout import Change, Layout, LayoutError, layout_of, resized
from tracekit.prediction.memory import judge
from tracekit.prediction.model import Coverage, Prediction, Predictions, Target
from tracekit.prediction.notes import HOST_SPREAD
from tracekit.prediction.scaling import kernels_as
from tracekit.prediction.source import SourceCluster, recognise
from tracekit.prediction.target import targets
from tracekit.replay.run import Run
from tracekit.workload.shares import share

AS_IT_IS = Change()
NO_PRICES: Mapping[str, float] = MappingProxyType({})
MODELLED = ("measured", "law", "transfer")
SCALED = ("scaled",)

Array = npt.NDArray[np.float64]


def predict(
    run: Run,
    gpus: Sequence[str],
    *,
    clusters: Sequence[str] = (),
    source_cluster: str | None = None,
    change: Change = AS_IT_IS,
    prices: Mapping[str, float] = NO_PRICES,
    calibrated: bool = True,
) -> Predictions:
    """Predict the step of a measured run on each of some GPUs and clusters.

    The step time is the measured one times the ratio of two replays of all chosen steps on the same graph, with the
    target's kernel times and with the measured ones; so the source GPU gives the measurement back.

    Args:
        run: The measured run.
        gpus: Names, in any spelling.
        clusters: Names of clusters, for whose links collectives are predicted too.
        source_cluster: Where the trace was recorded; None for the usual nodes around its GPU.
        change: How the job is laid out otherwise than in the trace.
        prices: Dollars for an hour of one GPU, by the GPU's name in any spelling.
        calibrated: Use the calibrations that are kept on this machine.

    Raises:
        PredictorError: A GPU is unknown or its name ambiguous.
        ClusterError: A cluster is unknown, its name wrong, or the job doesn't fit on it.
        LayoutError: The job can't be laid out like that.
        CalibrationError: A calibration can't be read.
    """
    wanted = targets(gpus, clusters)
    calibrations = calibration.stored() if calibrated else ()
    source = (
        recognise(run, source_cluster) if clusters or source_cluster else SourceCluster(None, "no cluster was named")
    )
    old = layout_of(run, change)
    new = resized(old, change) if old else None
    by_gpu = {resolve_gpu(name).gpu.slug: dollars for name, dollars in prices.items()}
    found = (_predict(run, replace(target, layout=new), source, old, calibrations) for target in wanted)
    return Predictions(run, tuple(replace(one, price=by_gpu.get(one.gpu)) for one in found))


def _predict(
    run: Run,
    target: Target,
    source: SourceCluster,
    old: Layout | None,
    calibrations: Sequence[calibration.Calibration],
) -> Prediction:
    layouts = (old, target.layout) if old and target.layout and old != target.layout else None
    _check_size(target, layouts)
    measured_us = pl.Series("measured_us", run.kernels["dur_ns"] / 1e3)
    table = kernels_as(run, target.gpu.gpu, *layouts) if layouts else run.kernels.with_columns(measured_us)
    measured_on = calibration.tables(calibrations, target.gpu.gpu)
    kernels = predictors.predict(table, target.gpu.gpu, source_gpu=run.gpu, calibrations=measured_on)
    times = table.select("name", "op", "input_dims", "family", "dtype", "measured_us").hstack(kernels)
    if target.cluster is not None:
        times = _with_collectives(times, retarget(run, source.cluster, target.cluster, layouts))
    filled = times.with_columns(
        pl.col("time_us", "low_us", "high_us").fill_null(pl.col("measured_us")),
        method=pl.when(pl.col("time_us").is_null()).then(pl.lit("kept")).otherwise("method"),
    )
    same_gpu = run.gpu is not None and run.gpu.slug == target.gpu.gpu.slug
    time_us, low_us, high_us = _point_and_ends(filled)
    spread = 1.0 if same_gpu else HOST_SPREAD
    step = run.step_with(time_us)
    low = run.step_with(low_us, 1 / spread)
    high = run.step_with(high_us, spread)
    # The graph's own error cancels in the ratio of two replays, as far as it is the same in both.
    per_span = run.measured.step_time_us / run.replay.span_us
    error = 0.0 if time_us.tolist() == measured_us.to_list() else abs(run.replay.error_pct) / 100
    step_time_us = step.span_us * per_span
    memory = judge(run, target.gpu.gpu, old, target.layout)
    return Prediction(
        target=target.gpu,
        step=replace(step, step_time_us=step_time_us),
        low_us=low.span_us * per_span * (1 - error),
        high_us=high.span_us * per_span * (1 + error),
        speedup=run.measured.step_time_us / step_time_us,
        coverage=_coverage(run, filled),
        kernels=filled.select(kernels.columns),
        notes=(
            *notes.of_calibrations(calibrations, target.gpu.gpu, same_gpu),
            *notes.of(run, target, source, filled, same_gpu),
            notes.of_memory(memory),
        ),
        memory=memory,
        ranks=target.layout.world_size if target.layout else run.trace.world_size,
        cluster=target.cluster,
        layout=target.layout,
    )


def _check_size(target: Target, layouts: tuple[Layout, Layout] | None) -> None:
    if layouts is None:
        return
    if target.cluster is None:
        raise LayoutError(f"{layouts[1]} on {target.label}: the links between them aren't known.", "Name a --cluster.")
    if layouts[1].world_size > target.cluster.gpus:
        raise ClusterError(f"{layouts[1]} don't fit on {target.label}, which has {target.cluster.gpus} GPUs.")


def _with_collectives(times: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Predicted kernels with the times of collectives put in, and their transfer; what can't be told is null."""
    changed = ("time_us", "low_us", "high_us", "method")
    rows = times.with_row_index("row").join(collectives, on="row", how="left", suffix="_new", maintain_order="left")
    mine = pl.col("family") == "collective"
    return rows.with_columns(pl.when(mine).then(f"{name}_new").otherwise(name).alias(name) for name in changed).select(
        *times.columns, "transfer_us"
    )


def _point_and_ends(times: pl.DataFrame) -> tuple[Array, Array, Array]:
    """Kernel times to replay for the prediction and for the two ends of its interval, in microseconds.

    Errors of one GPU's kernels go together, so the ends move all kernels by the factor that the interval of their
    sum allows. Those of one network's collectives go together too, and are moved by their own.
    """
    time_us = times["time_us"].to_numpy()
    low_us, high_us = time_us.copy(), time_us.copy()
    is_collective = (times["family"] == "collective").to_numpy()
    for part in (is_collective, ~is_collective):
        low, high = _factors(times.filter(part))
        low_us[part] *= low
        high_us[part] *= high
    return time_us, low_us, high_us


def _factors(times: pl.DataFrame) -> tuple[float, float]:
    """Ends of the interval of a sum of kernels, over the sum. Repeats of one kernel err alike and count as one."""
    repeats = times.group_by("name", "op", "input_dims").agg(pl.col("time_us", "low_us", "high_us").sum())
    time, low, high = total(repeats["time_us"].to_numpy(), repeats["low_us"].to_numpy(), repeats["high_us"].to_numpy())
    return (low / time, high / time) if time else (1.0, 1.0)


def _coverage(run: Run, kernels: pl.DataFrame) -> Coverage:
    """By measured time, over the chosen steps."""
    in_step = run.kernels["step"].is_in(run.chosen["step"].implode())
    table = pl.DataFrame({"time": run.kernels["dur_ns"], "method": kernels["method"]}).filter(in_step)
    modelled, scaled = (share(table, "time", pl.col("method").is_in(methods)) for methods in (MODELLED, SCALED))
    return Coverage(modelled, scaled, max(100 - modelled - scaled, 0.0))
