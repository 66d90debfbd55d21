"""A trace made ready to ask: its kernel table, steps and graph, the measured step, and the graph's own error."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from predictors import Gpu, PredictorError, Resolution, identify_gpu, resolve_gpu
from tracekit.arrays import Floats, Ints
from tracekit.errors import TraceError, TracekitError, WhatIfError
from tracekit.graph import Graph
from tracekit.graph.ranks import Collectives
from tracekit.replay.engine import Timeline, measured, replay
from tracekit.replay.job import gather
from tracekit.replay.measure import Meter, Scale, StepTime, per_step
from tracekit.trace import RankTrace, Trace
from tracekit.workload import precision

Progress = Callable[[str], None]

LONGEST_NS = 1e18

TRUSTED_ERROR_PCT = 5.0
"""A graph that misses the measured step by more has waits that it can't explain; up to it intervals hold."""


@dataclass(frozen=True, slots=True)
class SelfReplay:
    """The measured kernels replayed with every wait derived anew; what is left is the error of the graph.

    Attributes:
        step_time_us: The median step as replayed.
        span_us: All chosen steps as replayed.
        scale: What each step took as measured and as replayed.
        error_pct: Against the measured one.
        derived_wait_us: Waiting of CPU threads, of collectives for ranks that were read, and of kernels for the one
            before, that was taken out of the measured run and derived again, per step and rank.
        kept_wait_us: Waiting of collectives that is kept as measured, in the median step of a rank.
    """

    step_time_us: float
    span_us: float
    scale: Scale
    error_pct: float
    derived_wait_us: float
    kept_wait_us: float


@dataclass(frozen=True)
class Run:
    """The measured run of one rank, or of several together.

    Attributes:
        trace: What the rank recorded, of several the first.
        ranks: What each rank recorded that is measured.
        job_warnings: What a reader should know about the ranks that were given.
        ranks_read: Ranks whose traces were read.
        source: The GPU it was recorded on and how that was told; ``None`` if it isn't known.
        doubt: Why it isn't known, if the trace describes it, or that the trace describes another than was named.
        kernels: The kernel table (``schema.KERNELS``), of several ranks with a column ``rank``. A collective's
            ``dur_ns`` is its transfer; ``wait_ns`` is what it waited before for other ranks, and any kernel inside for
            the one before on its stream.
        steps: All steps of the trace, of several ranks with a column ``rank``.
        chosen: The steps that are measured.
        graph: What has to wait for what.
        collectives: Where the ranks meet; ``None`` for one rank.
        measured: The median step as recorded.
        replay: The median step as the graph gives it back.
        kernel_factor: What each kernel takes, as a multiple of the time that a replay is asked for, once a what-if
            edit has changed some; ``None`` as long as none has.
        edits: The what-if edits that were applied, as they were written.
        assumptions: What was taken to be otherwise than recorded, a sentence each.
    """

    trace: RankTrace
    ranks: tuple[RankTrace, ...]
    job_warnings: tuple[str, ...]
    ranks_read: int
    source: Resolution | None
    doubt: str | None
    kernels: pl.DataFrame
    steps: pl.DataFrame
    chosen: pl.DataFrame
    graph: Graph
    collectives: Collectives | None
    measured: StepTime
    replay: SelfReplay
    kernel_factor: Floats | None = None
    edits: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def gpu(self) -> Gpu | None:
        """The GPU it was recorded on."""
        return self.source.gpu if self.source else None

    @property
    def in_steps(self) -> pl.Series:
        """Whether each kernel is of a chosen step."""
        return self.kernels["step"].is_in(self.chosen["step"].implode()).fill_null(False)

    @property
    def kernel_us(self) -> Floats:
        """What each kernel took, as measured."""
        return (self.kernels["dur_ns"] / 1e3).to_numpy()

    @cached_property
    def meter(self) -> Meter:
        """What its timelines are measured with."""
        return Meter(self.kernels, self.steps, self.chosen)

    def timeline_with(self, kernel_us: Floats, host_time: float = 1.0) -> Timeline:
        """The timeline with other kernel times, and a slower or faster host.

        Args:
            kernel_us: As in :meth:`step_with`.
            host_time: As there.
        """
        return replay(self.graph, self.durations_ns(kernel_us), host_time)

    def each_step(self, timeline: Timeline) -> pl.DataFrame:
        """A row for each chosen step of a timeline, of several ranks for each of theirs.

        Args:
            timeline: Of this run.

        Returns:
            As :func:`tracekit.replay.measure.per_step`, always with ``rank``; and whether it is ``steady``: not the
            trace's first, unless no other was chosen.
        """
        table = per_step(timeline, self.kernels, self.steps)
        table = table.join(self.chosen.select("step").unique(), on="step", how="semi", maintain_order="left")
        rank = pl.col("rank") if "rank" in table.columns else pl.lit(0).alias("rank")
        return table.with_columns(rank, steady=~pl.col("first") | pl.col("first").all())

    def durations_ns(self, kernel_us: Floats) -> Ints:
        """Kernel times as a replay takes them, what-if edits put in; argument as in :meth:`step_with`."""
        factor = 1.0 if self.kernel_factor is None else self.kernel_factor
        return whole_ns(kernel_us * factor * 1e3, "kernels")

    def median(self, timeline: Timeline, longer: Floats | float = 1.0) -> StepTime:
        """The median step of a replay, each step on the scale of its own measured time.

        Args:
            timeline: A replay of this run, or of one that edits made of it.
            longer: As in :meth:`Meter.median`.
        """
        return self.meter.median(timeline, self.replay.scale, longer)

    def step_with(self, kernel_us: Floats, host_time: float = 1.0) -> StepTime:
        """The median step with other kernel times, and a slower or faster host, as :meth:`median` gives it.

        Args:
            kernel_us: How long each kernel takes, in the order of the kernel table; collectives without waiting for
                other ranks.
            host_time: What the CPU's own work takes, as a multiple of the measured time.
        """
        return self.median(self.timeline_with(kernel_us, host_time))


def whole_ns(times_ns: Floats, of: str) -> Ints:
    """Times as a replay adds them up.

    Args:
        times_ns: The times.
        of: What takes them, for the message.

    Raises:
        WhatIfError: Their sum is beyond what anybody can mean, and near what 64 bits hold.
    """
    if not times_ns.sum() < LONGEST_NS:
        raise WhatIfError(f"the {of} would take more than 30 years.", "Change them less.")
    whole: Ints = np.rint(times_ns).astype(np.int64)
    return whole


def prepare(
    trace: Trace,
    *,
    source_gpu: str | None = None,
    steps: str | None = None,
    rank: int | None = None,
    progress: Progress = lambda stage: None,
) -> Run:
    """Classify a trace's kernels, link its dependencies, and replay it.

    Args:
        trace: The trace.
        source_gpu: The GPU it was recorded on, where the trace doesn't say, or says it wrong.
        steps: The steps to measure, ``"7"`` or ``"7:9"``; all by default.
        rank: The rank to measure; by default all that were read, together.
        progress: Called with the name of each stage as it begins.

    Raises:
        StepError: The trace doesn't have these steps.
        TraceError: The trace doesn't have this rank, or no step that takes any time.
        PredictorError: ``source_gpu`` is unknown or ambiguous.
        TracekitError: It isn't a trace, but a file's name for one.
    """
    if not isinstance(trace, Trace):
        raise TracekitError(f"{trace!r} is no trace.", "Load it: tk.load(path).")
    ranks = trace.ranks if rank is None else (trace.rank(rank),)
    source, doubt = _named(source_gpu, ranks[0]) if source_gpu else _identify(ranks[0])
    job = gather(ranks, steps, progress)
    progress("replay")
    meter = Meter(job.kernels, job.steps, job.chosen)
    lines = measured(job.graph), replay(job.graph)
    as_measured, replayed = (meter.median(line) for line in lines)
    if as_measured.step_time_us <= 0:
        raise TraceError(f"{ranks[0].source} has no step that takes any time.", "Its events' times are all the same.")
    return Run(
        trace=ranks[0],
        ranks=ranks,
        job_warnings=trace.warnings,
        ranks_read=len(trace.ranks),
        source=source,
        doubt=doubt,
        kernels=precision.proven(job.kernels, source.gpu) if source else job.kernels,
        steps=job.steps,
        chosen=job.chosen,
        graph=job.graph,
        collectives=job.collectives,
        measured=as_measured,
        replay=SelfReplay(
            step_time_us=replayed.step_time_us,
            span_us=replayed.span_us,
            scale=meter.scale(*lines),
            error_pct=100 * (replayed.step_time_us / as_measured.step_time_us - 1),
            derived_wait_us=job.graph.waited_ns / 1e3 / job.steps.height,
            kept_wait_us=meter.median_us(job.graph.kept_ns),
        ),
    )


def _named(name: str, trace: RankTrace) -> tuple[Resolution, str | None]:
    """The GPU of that name, and that the trace describes another one where it does."""
    named, (described, _) = resolve_gpu(name), _identify(trace)
    if described is None or described.gpu == named.gpu:
        return named, None
    told = f"the trace describes its GPU as {described.gpu.slug}: its times count as {named.gpu.slug}'s, as asked"
    return named, told


def _identify(trace: RankTrace) -> tuple[Resolution | None, str | None]:
    """The GPU that the trace describes, or why it can't be told."""
    device = trace.device
    if device is None:
        return None, None
    try:
        return identify_gpu(device.name, device.sms, device.memory_bytes, device.compute_capability), None
    except PredictorError as error:
        return None, str(error)
