"""What a traced step would take on other GPUs: every kernel predicted, then the graph replayed with those times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, inf
from numbers import Real
from types import MappingProxyType

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.intervals import KEPT
from tracekit import calibration
from tracekit.arrays import Floats, Ints
from tracekit.comm import Cluster, ClusterError
from tracekit.errors import TracekitError
from tracekit.graph.change import without
from tracekit.prediction import notes
from tracekit.prediction.batch import Batch, batch_of_job
from tracekit.prediction.collectives import put_in, retarget
from tracekit.prediction.ends import point_and_ends, repeats
from tracekit.prediction.experts import kept_parameters
from tracekit.prediction.grown import with_added
from tracekit.prediction.kernels import Kernels
from tracekit.prediction.lacking import Adder, lacking, with_all
from tracekit.prediction.layout import Change, Layout, LayoutError, layout_of, resized
from tracekit.prediction.memory import Needs, judge, needs
from tracekit.prediction.model import Coverage, Prediction, Predictions, Refused, Shared, Target
from tracekit.prediction.pipeline import Pipeline
from tracekit.prediction.prices import keep
from tracekit.prediction.scaling import as_measured, kernels_as, kernels_depend_on
from tracekit.prediction.source import SourceCluster, recognise, with_gpu
from tracekit.prediction.spread import HOST_SPREAD, Spread, Straggling, measure_spread, straggling
from tracekit.prediction.stages import growth, of_one_stage, staged, worked
from tracekit.prediction.target import resolve, targets
from tracekit.replay.contention import WORTH_PCT, Sharing
from tracekit.replay.measure import StepTime
from tracekit.replay.run import Run
from tracekit.units import many
from tracekit.workload.shares import cover

AS_IT_IS = Change()
NO_PRICES: Mapping[str, float] = MappingProxyType({})
MODELLED = ("measured", "law", "transfer")
SCALED = ("scaled",)
ASKED = ("name", "op", "input_dims", "family", "dtype", "measured_us")


def predict(
    run: Run,
    gpus: Sequence[str],
    *,
    clusters: Sequence[str] = (),
    source_cluster: str | None = None,
    change: Change = AS_IT_IS,
    prices: Mapping[str, float] = NO_PRICES,
    samples: float | None = None,
    calibrated: bool = True,
) -> Predictions:
    """Predict the step of a measured run on each of some GPUs and clusters.

    The step time is the median of the predicted steps. Each is its own measured time, times the ratio of what it takes
    in two replays of the same graph, with the target's kernel times and with the measured ones; so the source GPU gives
    the measurement back, and a step that was slow for a reason of its own changes nothing.

    Args:
        run: The measured run.
        gpus: Names, in any spelling.
        clusters: Names of clusters, for whose links collectives are predicted too.
        source_cluster: Where the trace was recorded; None for the usual nodes around its GPU.
        change: How the job is laid out otherwise than in the trace.
        prices: Dollars for an hour of one GPU, by the GPU's name in any spelling.
        samples: What a rank works through in a measured step; None for what the trace tells.
        calibrated: Use the calibrations that are kept on this machine.

    Raises:
        PredictorError: A GPU is unknown or its name ambiguous.
        ClusterError: A cluster is unknown, its name wrong, or the job fits on none of them.
        LayoutError: The job can't be laid out like that on any of them.
        CalibrationError: A calibration can't be read.
        TracekitError: ``prices`` are no prices, or ``samples`` no number of them.
    """
    wanted = targets(gpus, clusters)
    cluster_known = bool(clusters) or source_cluster is not None
    source = recognise(run, source_cluster) if cluster_known else SourceCluster(None, "no cluster was named")
    run = with_gpu(run, source)
    old = layout_of(run, change)
    new = resized(old, change) if old else None
    calibrations = calibration.stored() if calibrated else ()
    batch = batch_of_job(run, old, samples)
    predictor = Predictor(run, source, old, batch, by_gpu(prices), calibrations)
    predicted, refused = _on_all(predictor, [replace(target, layout=new) for target in wanted])
    price = predictor.prices.get(run.gpu.slug) if run.gpu else None
    return Predictions(run, predicted, price=price, batch=batch, refused=refused)


def _on_all(predictor: "Predictor", wanted: Sequence[Target]) -> tuple[tuple[Prediction, ...], tuple[Refused, ...]]:
    """The step where it can be predicted, and why it can't be elsewhere.

    Raises:
        ClusterError: As below, of all targets.
        LayoutError: The job can't be laid out like that on any of them.
    """
    predicted, refused = [], []
    for target in wanted:
        try:
            predicted.append(predictor.on(target))
        except (ClusterError, LayoutError) as error:
            refused.append(Refused(target.label, error))
    if refused and not predicted:
        raise _of_all(refused)
    return tuple(predicted), tuple(refused)


def _of_all(refused: Sequence[Refused]) -> TracekitError:
    """One error for several targets."""
    first = refused[0].error
    if len({str(one.error) for one in refused}) == 1:
        return first
    return type(first)(" ".join(f"{one.label}: {one.error}" for one in refused))


def by_gpu(prices: Mapping[str, float]) -> dict[str, float]:
    """Prices by the canonical names of their GPUs.

    Raises:
        PredictorError: A GPU is unknown or its name ambiguous.
        ClusterError: A cluster stands where a GPU belongs.
        TracekitError: These are no prices by name, one is negative or no number, or a GPU has two.
    """
    if not isinstance(prices, Mapping) or not all(isinstance(name, str) for name in prices):
        raise TracekitError(f"{prices!r} are no prices.", "Give dollars by the GPU's name: {'h100-sxm': 2.49}.")
    for name, dollars in prices.items():
        if not isinstance(dollars, Real) or isinstance(dollars, bool) or not 0 <= dollars < inf:
            raise TracekitError(f"an hour of {name} can't cost {dollars!r} dollars.")
    by_slug: dict[str, float] = {}
    for name, dollars in prices.items():
        keep(by_slug, resolve(name).gpu.slug, dollars)
    return by_slug


@dataclass(frozen=True)
class Predictor:
    """Predicts one run's step on targets; what several of them share is worked out once.

    Attributes:
        run: The measured run.
        source: Where it was recorded.
        layout: Of the trace; None if it can't be told.
        batch: What its job works through in a step; None if it can't be told.
        prices: Dollars for an hour of one GPU, by its canonical name.
        calibrations: Those that are used.
        assumed: Of collectives that were put into the run, one clause each.
    """

    run: Run
    source: SourceCluster
    layout: Layout | None
    batch: Batch | None
    prices: Mapping[str, float]
    calibrations: Sequence[calibration.Calibration]
    assumed: tuple[str, ...] = ()
    _known: dict[tuple[object, ...], pl.DataFrame] = field(default_factory=dict, repr=False)
    _laid_out: dict[tuple[object, ...], Kernels] = field(default_factory=dict, repr=False)
    _grown: dict[tuple[Adder, ...], "Predictor"] = field(default_factory=dict, repr=False)

    @cached_property
    def _repeats(self) -> Ints:
        return repeats(self.run.kernels)

    @cached_property
    def spread(self) -> Spread:
        """How its ranks and steps differ."""
        return measure_spread(self.run)

    @cached_property
    def _needs(self) -> Needs:
        return needs(self.run)

    @cached_property
    def _sharing(self) -> Sharing:
        return Sharing(self.run)

    def grown(self, adders: tuple[Adder, ...]) -> "Predictor":
        """The predictor of the run with collectives that its trace doesn't hold.

        Args:
            adders: What puts them in.

        Raises:
            LayoutError: The trace doesn't tell what would be communicated.
        """
        if adders not in self._grown:
            run, notes = with_all(self.run, adders)
            self._grown[adders] = replace(self, run=run, assumed=notes, _known={}, _laid_out={}, _grown={})
        return self._grown[adders]

    def on(self, target: Target) -> Prediction:
        """The step on one target.

        Raises:
            ClusterError: The job doesn't fit on the cluster.
            LayoutError: The job can't be laid out like that.
        """
        layouts = _changed(self.layout, target)
        if layouts and not self.assumed and (adders := lacking(self.run, *layouts)):
            grown = self.grown(adders)
            return with_added(grown.on(target), self.run, grown.run.kernels)
        of_stage = of_one_stage(layouts)
        times = self._kernel_times(target.gpu.gpu, of_stage)
        run = self.run
        if target.cluster is not None:
            collectives = retarget(run, self.source.cluster, target.cluster, of_stage)
            times = put_in(times, collectives)
            run = _apart(run, collectives.filter("alone")["row"].to_numpy())
        return self._replayed(run, target, layouts, times)

    def _kernel_times(self, gpu: Gpu, layouts: tuple[Layout, Layout] | None) -> pl.DataFrame:
        """All kernels but collectives on a GPU; null where that can't be told."""
        key = (gpu.slug, kernels_depend_on(layouts[1]) if layouts else None)
        if key not in self._known:
            kernels = self._kernels(gpu, layouts)
            times = kernels.on(gpu, calibration.tables(self.calibrations, gpu))
            self._known[key] = kernels.table.select(ASKED).hstack(times)
        return self._known[key]

    def _kernels(self, gpu: Gpu, layouts: tuple[Layout, Layout] | None) -> Kernels:
        """The kernels in a layout."""
        unknown = gpu.slug if self.run.gpu is None else None
        key = (unknown, kernels_depend_on(layouts[1])) if layouts else ()
        if key not in self._laid_out:
            table = kernels_as(self.run, gpu, *layouts) if layouts else as_measured(self.run)
            self._laid_out[key] = Kernels(table, self.run.gpu)
        return self._laid_out[key]

    def _replayed(
        self, run: Run, target: Target, layouts: tuple[Layout, Layout] | None, times: pl.DataFrame
    ) -> Prediction:
        gpu = target.gpu.gpu
        same_gpu = run.gpu is not None and run.gpu.slug == gpu.slug
        same_ranks = layouts is None or layouts[0].world_size == layouts[1].world_size
        same_host = same_gpu and same_ranks and not self.assumed
        filled = _kept(times, 0.0 if same_gpu and not layouts else KEPT)
        stepped = self._stepped(run, target, layouts, filled, same_host)
        pipeline = stepped.pipeline
        more = growth(layouts, pipeline)
        shared = None if same_gpu or layouts else self._shared(filled["time_us"].to_numpy())
        in_flight = pipeline.in_flight if pipeline else 1.0
        memory = judge(run, gpu, layouts, self._needs, in_flight, kept_parameters(run, layouts))
        kernels = _edited(run, filled.drop(ASKED, "transfer_us", strict=False))
        is_told = same_host or bool(self.assumed)
        return Prediction(
            target=target.gpu,
            step=stepped.step,
            low_us=stepped.low_us,
            high_us=stepped.high_us,
            speedup=run.measured.step_time_us / stepped.step.step_time_us,
            coverage=_coverage(run, filled),
            kernels=kernels,
            run=run,
            replayed=kernels,
            notes=(
                *notes.of_calibrations(self.calibrations, gpu, same_gpu),
                *notes.of(run, target, self.source, filled, same_gpu, shared, pipeline, is_told),
                *self.assumed,
                *([stepped.late.note] if stepped.late.note else []),
                notes.of_memory(memory),
                *notes.of_prices(self.prices, gpu),
            ),
            memory=memory,
            ranks=target.layout.world_size if target.layout else run.trace.world_size,
            cluster=target.cluster,
            layout=target.layout,
            price=self.prices.get(gpu.slug),
            pipeline=pipeline,
            samples=more,
            batch=self.batch.times(more) if self.batch else None,
            shared=shared,
        )

    def _stepped(
        self, run: Run, target: Target, layouts: tuple[Layout, Layout] | None, times: pl.DataFrame, same_host: bool
    ) -> "_Stepped":
        """The step and its interval, by replays with the likely kernel times and with those of the two ends."""
        kernel_us = point_and_ends(times, self._repeats)
        spread = 1.0 if same_host or notes.host_is_given(run) else HOST_SPREAD
        lines = [run.timeline_with(us, host) for us, host in zip(kernel_us, (1.0, 1 / spread, spread), strict=True)]
        pipeline, longer = staged(run, lines, target, layouts)
        step, low, high = (run.median(line, factor) for line, factor in zip(lines, longer, strict=True))
        step_us, low_us, high_us = (one.step_time_us for one in (step, low, high))
        # A step that the CPU paces is shorter the longer the kernels of the one before took.
        low_us, high_us = min(low_us, step_us, high_us), max(low_us, step_us, high_us)
        late = straggling(self.run, self.spread, *layouts) if layouts else Straggling()
        as_traced = run is self.run and not run.edits and not pipeline
        measured_us = times["measured_us"].to_numpy()
        # The graph's own error cancels in the ratio of two replays, as far as it is the same in both.
        error = 0.0 if as_traced and np.array_equal(kernel_us[0], measured_us) else abs(run.replay.error_pct) / 100
        ends = late.ends(step_us, low_us / (1 + error), high_us * (1 + error))
        return _Stepped(worked(step, step_us * late.likely, pipeline, target.layout), *ends, pipeline, late)

    def _shared(self, time_us: Floats) -> Shared | None:
        """The step with contention, where enough overlaps."""
        if self._sharing.overlap < WORTH_PCT:
            return None
        found = self._sharing.contention(time_us)
        return Shared(found.overlap, found.apart.step_time_us, found.shared.step_time_us)


@dataclass(frozen=True, slots=True)
class _Stepped:
    """The step, the ends of its interval, the stages that it runs through, and what it waits for its slowest rank."""

    step: StepTime
    low_us: float
    high_us: float
    pipeline: Pipeline | None
    late: Straggling


def _kept(times: pl.DataFrame, width: float) -> pl.DataFrame:
    """Predicted times, and the measured one where nothing can be told, with an interval.

    Args:
        times: Predicted, null where that can't be told.
        width: Half-width of the interval of what is kept, as a logarithm.
    """
    ends = {"low_us": exp(-width), "time_us": 1.0, "high_us": exp(width)}
    return times.with_columns(
        *(pl.col(end).fill_null(pl.col("measured_us") * factor) for end, factor in ends.items()),
        method=pl.when(pl.col("time_us").is_null()).then(pl.lit("kept")).otherwise("method"),
    )


def _changed(old: Layout | None, target: Target) -> tuple[Layout, Layout] | None:
    """The layouts of trace and target where they differ, once it is known that the target can hold it."""
    if old is not None and target.cluster is not None:
        layout = target.layout or old
        if layout.world_size > target.cluster.gpus:
            raise _too_small(target.cluster, layout)
    if old is None or target.layout is None or old == target.layout:
        return None
    if target.cluster is None and not _same_messages(old, target.layout):
        nodes = -(-target.layout.world_size // 8)
        such_as = f"{nodes}x8x{target.label}@ndr400" if nodes > 1 else f"8x{target.label}"
        raise LayoutError(
            f"{target.layout} on {target.label}: the links between them aren't known.",
            f"Name a cluster in its place, such as --cluster {such_as}.",
        )
    return old, target.layout


def _too_small(cluster: Cluster, layout: Layout) -> ClusterError:
    replica = layout.world_size // layout.dp
    most = cluster.gpus // replica * replica
    fitting = (
        f"or predict a job that fits: --world-size {most}" if most else f"as one replica of the job has {replica} ranks"
    )
    return ClusterError(
        f"{layout} don't fit on {cluster.slug}, which has {many(cluster.gpus, 'GPU')}.",
        f"Name a larger cluster, {fitting}.",
    )


def _same_messages(old: Layout, new: Layout) -> bool:
    """Whether another batch is all that changes, and no rank sends what grows with it."""
    return replace(new, batch=old.batch) == old and old.tp == old.pp == old.ep == 1


def _apart(run: Run, rows: Ints) -> Run:
    """``run`` in which some collectives, by their rows, no longer wait for other ranks."""
    if not rows.size:
        return run
    graph = run.graph
    kept_ns = graph.kept_ns.copy()
    kept_ns[rows] = 0
    meets = np.zeros(graph.src.size, dtype=np.bool_)
    meets[graph.transfer_edge[np.isin(graph.transfer_activity, rows)]] = True
    return replace(run, graph=replace(without(graph, meets), kept_ns=kept_ns))


def _edited(run: Run, kernels: pl.DataFrame) -> pl.DataFrame:
    """Predicted times as what-if edits of the run make them."""
    if run.kernel_factor is None:
        return kernels
    return kernels.with_columns(pl.col("time_us", "low_us", "high_us") * pl.Series(run.kernel_factor))


def _coverage(run: Run, kernels: pl.DataFrame) -> Coverage:
    """By measured time, over the chosen steps; over all of the trace if nothing ran in these."""
    table = pl.DataFrame({"time": run.kernels["dur_ns"], "method": kernels["method"]})
    table = table.filter(run.in_steps) if run.in_steps.any() else table
    modelled, scaled = (pl.col("method").is_in(methods) for methods in (MODELLED, SCALED))
    return Coverage(*cover(table, "time", modelled, scaled, ~(modelled | scaled)))
