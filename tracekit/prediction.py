"""What a traced step would take on other GPUs: every kernel predicted, then the graph replayed with those times."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

import predictors
from predictors import Resolution, resolve_gpu
from predictors.intervals import total
from tracekit.replay.measure import StepTime
from tracekit.replay.run import Run
from tracekit.workload.shares import share

MODELLED = ("measured", "law", "transfer")
SCALED = ("scaled",)

# The GPU asked for mostly sits in another machine. Five jobs recorded on an H100 and on an MI300X machine differ by 6
# to 10 % in the time their CPUs take.
HOST_SPREAD = 1.15

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Coverage:
    """Shares of the step's GPU time by how they were predicted, in percent.

    Attributes:
        modelled: From shapes.
        scaled: By the resource that kernels of their class bind on.
        unknown: Kept as measured.
    """

    modelled: float
    scaled: float
    unknown: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """The traced step on one GPU.

    Attributes:
        target: The GPU, and how its name was understood.
        step: The median step.
        low_us: Lower end of the step time's 90 % interval.
        high_us: Upper end.
        speedup: Measured step time over predicted.
        coverage: How the GPU time was predicted.
        kernels: One row per kernel of the kernel table, as ``predictors.predict`` gives it; what it can't tell is
            kept as measured.
        notes: What to know about this prediction.
    """

    target: Resolution
    step: StepTime
    low_us: float
    high_us: float
    speedup: float
    coverage: Coverage
    kernels: pl.DataFrame
    notes: tuple[str, ...]

    @property
    def gpu(self) -> str:
        """Canonical name of the GPU."""
        slug: str = self.target.gpu.slug
        return slug


@dataclass(frozen=True, slots=True)
class Predictions(Mapping[str, Prediction]):
    """The traced step on several GPUs, by name in any spelling, in the order asked for."""

    run: Run
    targets: tuple[Prediction, ...]

    def __getitem__(self, gpu: str) -> Prediction:
        """The prediction for one GPU."""
        slug = resolve_gpu(gpu).gpu.slug
        for target in self.targets:
            if target.gpu == slug:
                return target
        raise KeyError(gpu)

    def __iter__(self) -> Iterator[str]:
        """Canonical names of the GPUs."""
        return (target.gpu for target in self.targets)

    def __len__(self) -> int:
        """How many GPUs."""
        return len(self.targets)


def predict(run: Run, gpus: Sequence[str]) -> Predictions:
    """Predict the step of a measured run on each of some GPUs.

    The step time is the measured one times the ratio of two replays of all chosen steps on the same graph, with the
    target's kernel times and with the measured ones; so the source GPU gives the measurement back.

    Args:
        run: The measured run.
        gpus: Names, in any spelling.

    Raises:
        PredictorError: A GPU is unknown or its name ambiguous.
    """
    targets = [resolve_gpu(name) for name in gpus]
    return Predictions(run, tuple(_predict(run, target) for target in targets))


def _predict(run: Run, target: Resolution) -> Prediction:
    measured_us = pl.Series("measured_us", run.kernels["dur_ns"] / 1e3)
    table = run.kernels.with_columns(measured_us)
    kernels = predictors.predict(table, target.gpu, source_gpu=run.gpu)
    times = table.select("name", "op", "input_dims", "family", "dtype", "measured_us").hstack(kernels)
    filled = times.with_columns(
        pl.col("time_us", "low_us", "high_us").fill_null(pl.col("measured_us")),
        method=pl.when(pl.col("time_us").is_null()).then(pl.lit("kept")).otherwise("method"),
    )
    is_source = run.gpu is not None and run.gpu.slug == target.gpu.slug
    time_us, low_us, high_us = _point_and_ends(filled)
    spread = 1.0 if is_source else HOST_SPREAD
    step = run.step_with(time_us)
    low = run.step_with(low_us, 1 / spread)
    high = run.step_with(high_us, spread)
    # The graph's own error cancels in the ratio of two replays, as far as it is the same in both.
    per_span = run.measured.step_time_us / run.replay.span_us
    error = 0.0 if is_source else abs(run.replay.error_pct) / 100
    step_time_us = step.span_us * per_span
    return Prediction(
        target=target,
        step=replace(step, step_time_us=step_time_us),
        low_us=low.span_us * per_span * (1 - error),
        high_us=high.span_us * per_span * (1 + error),
        speedup=run.measured.step_time_us / step_time_us,
        coverage=_coverage(run, filled),
        kernels=filled.select(kernels.columns),
        notes=tuple(_notes(run, target, filled, is_source)),
    )


def _point_and_ends(times: pl.DataFrame) -> tuple[Array, Array, Array]:
    """Kernel times to replay for the prediction and for the two ends of its interval, in microseconds.

    Errors of one GPU's kernels go together, so the ends move all kernels by the factor that the interval of their
    sum allows. Repeats of one kernel err alike and count as one.
    """
    repeats = times.group_by("name", "op", "input_dims").agg(pl.col("time_us", "low_us", "high_us").sum())
    time, low, high = total(repeats["time_us"].to_numpy(), repeats["low_us"].to_numpy(), repeats["high_us"].to_numpy())
    time_us = times["time_us"].to_numpy()
    return time_us, time_us * (low / time if time else 1.0), time_us * (high / time if time else 1.0)


def _coverage(run: Run, kernels: pl.DataFrame) -> Coverage:
    """By measured time, over the chosen steps."""
    in_step = run.kernels["step"].is_in(run.chosen["step"].implode())
    table = pl.DataFrame({"time": run.kernels["dur_ns"], "method": kernels["method"]}).filter(in_step)
    modelled, scaled = (share(table, "time", pl.col("method").is_in(methods)) for methods in (MODELLED, SCALED))
    return Coverage(modelled, scaled, max(100 - modelled - scaled, 0.0))


def _notes(run: Run, target: Resolution, times: pl.DataFrame, is_source: bool) -> Iterator[str]:
    if target.others:
        yield f"{target.query!r} was taken as {target.gpu.slug}; there is also {', '.join(target.others)}"
    if run.gpu is None:
        yield "the source GPU isn't known: kernels with shapes are predicted without their measurement, others kept"
    yield from _substitutions(target, times)
    communication = share(times, "time_us", pl.col("family") == "collective")
    if communication and not is_source:
        yield f"collectives ({communication:.0f} % of GPU time) are kept as measured: links are not retargeted"
    if not is_source:
        yield (
            "the host's own work is taken to cost what it did; the interval allows for one "
            f"{100 * (HOST_SPREAD - 1):.0f} % slower or faster"
        )


def _substitutions(target: Resolution, times: pl.DataFrame) -> Iterator[str]:
    """Precisions that the target lacks, and what the estimate uses in their place."""
    substituted = times.drop_nulls("runs_as").select("dtype", "runs_as").unique().sort("dtype", "runs_as")
    for dtype, runs_as in substituted.iter_rows():
        if dtype == "tf32" or target.gpu.supports(dtype):  # a GPU without TF32 runs the same program in fp32
            continue
        part = share(times, "time_us", (pl.col("dtype") == dtype) & (pl.col("runs_as") == runs_as))
        yield f"{target.gpu.name} has no {dtype}: not runnable as is; {part:.0f} % of GPU time estimated in {runs_as}"
