"""The job that is predicted: its parts, what is known of all of them, and its replays on a target."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TypeVar

import polars as pl

from predictors import Gpu
from predictors.transfer import StackErrors
from tracekit.analysis.contention import MIN_OVERLAP_PCT, ContentionModel
from tracekit.comm import Cluster
from tracekit.hosts import HostSpeed
from tracekit.messages import Message
from tracekit.parallelism.expert_parallel import compute_held_parameter_fraction
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.missing_collectives import Inserter, insert_all
from tracekit.parallelism.pipeline_parallel import Pipeline
from tracekit.parallelism.stragglers import RankSpread, measure_rank_spread
from tracekit.prediction.batch import StepBatch
from tracekit.prediction.experience import classify_job
from tracekit.prediction.intervals import combine_ends
from tracekit.prediction.memory import MemoryFit, MemoryNeeds, estimate_memory_needs, judge_memory_fit
from tracekit.prediction.model import PredictedStep, Prediction, StepOnHost, StepWithContention, Target
from tracekit.prediction.part import (
    HIGH,
    KERNEL_COLUMNS,
    LIKELY,
    LOW,
    NO_HOST,
    MemoryStore,
    Part,
    PartOnTarget,
    PartTarget,
    Place,
    Replay,
    apply_edits_to,
)
from tracekit.prediction.profiler_cost import ProfilerCost
from tracekit.prediction.rounds import PartWithRendezvous, TimedPart, merge_steps, time_steps
from tracekit.prediction.target_host import HostTimes
from tracekit.program import Program
from tracekit.replay.step_time import JobSteps, StepTime, StepTimes
from tracekit.run import MeasuredRun

Item = TypeVar("Item")
Result = TypeVar("Result")

INNER_COLUMNS = ("transfer_us", "slowdown", "clock_slowdown", "demand_w", "shared_error")
"""Of predicted kernels, which the prediction itself doesn't show."""


class Job(ABC):
    """A job that is predicted: its parts, and what all of them tell.

    Attributes:
        run: The measured run.
        program: What is predicted. Of a job in several parts, of whose kernels only the collectives are here.
        layout: Its layout; None if it is unknown.
        batch: What all ranks process in a step; None if it is unknown.
        places: Where its parts are.
        steps: The steps of all ranks together.
        gpus_per_rank: GPUs that a rank drives.
        assumptions: What was assumed for inserted collectives.
    """

    run: MeasuredRun
    program: Program
    layout: Layout | None
    batch: StepBatch | None
    places: Sequence[Place]
    steps: JobSteps
    gpus_per_rank: int
    assumptions: tuple[Message, ...] = ()

    @property
    @abstractmethod
    def kind(self) -> str:
        """What kind of job it is: see :func:`tracekit.prediction.experience.classify_job`."""

    @property
    @abstractmethod
    def host(self) -> HostSpeed | None:
        """How fast its hosts are; None where that can't be told."""

    @property
    @abstractmethod
    def spread(self) -> RankSpread:
        """Variation among its ranks and steps."""

    @abstractmethod
    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Apply a function to something of each part."""

    @abstractmethod
    def replay(self, items: Sequence[PartOnTarget]) -> list[TimedPart]:
        """Replay all parts together; return the steps of each part."""

    @abstractmethod
    def split_collectives(self, collectives: pl.DataFrame | None) -> Iterator[pl.DataFrame | None]:
        """Yield for each part its own collectives, with ``row`` among its kernels."""

    @abstractmethod
    def find_errors(self, targets: Sequence[PartTarget]) -> tuple[StackErrors, ...] | None:
        """Find what the model misses of all parts' kernels on their own GPU; None where one part tells.

        Args:
            targets: The target as each part sees it.
        """

    @abstractmethod
    def insert_collectives(self, inserters: tuple[Inserter, ...]) -> "Job":
        """Return the job with inserted collectives.

        Raises:
            LayoutError: The trace doesn't reveal what to insert, or several ranks were read.
        """

    @abstractmethod
    def judge_memory(self, gpu: Gpu, layouts: tuple[Layout, Layout] | None, in_flight: float = 1.0) -> MemoryFit:
        """Judge whether a rank fits; arguments as for :func:`tracekit.prediction.memory.judge_memory_fit`."""

    @abstractmethod
    def predict_contention(self, item: PartOnTarget, host_time: float) -> StepWithContention | None:
        """Predict the step with contention; None where little overlaps, or no part knows all kernels of a GPU."""

    @abstractmethod
    def write_job_notes(self, replays: "JobReplays", step: StepTime, host_time: float) -> Iterator[Message]:
        """Note the profiler's own cost in a predicted step, and what couldn't be predicted of this job."""

    @abstractmethod
    def finish(
        self, step: PredictedStep, items: Sequence[PartOnTarget], target: Target, host: HostTimes
    ) -> PredictedStep:
        """Return the prediction as this job gives it: in memory with its kernels and the program that was replayed."""


@dataclass(frozen=True, slots=True)
class WholePlace:
    """A part that is open already."""

    part: Part

    def open(self) -> Part:
        """Return the part."""
        return self.part


class WholeJob(Job):
    """A job in memory: one part with all ranks that were read.

    Args:
        run: The measured run.
        program: What is predicted: the run's program, or what edits and inserted collectives made of it.
        layout: Its layout; None if it is unknown.
        batch: What all ranks process in a step; None if it is unknown.
        assumptions: What was assumed for inserted collectives.
    """

    def __init__(
        self,
        run: MeasuredRun,
        program: Program,
        layout: Layout | None,
        batch: StepBatch | None,
        assumptions: tuple[Message, ...] = (),
    ) -> None:
        self.run, self.program, self.layout, self.batch = run, program, layout, batch
        self.assumptions = assumptions
        store = MemoryStore() if program.kernel_tables is None else MemoryStore(program.kernel_tables)
        self.places = (WholePlace(Part(program, store)),)
        self.steps = program.step_timer.job
        self.gpus_per_rank = program.step_timer.gpus_per_rank
        self._grown: dict[tuple[Inserter, ...], WholeJob] = {}

    def as_traced(self) -> "WholeJob":
        """Return the job without what changes its program."""
        return self if self.program is self.run.program else WholeJob(self.run, self.run.program, None, None)

    @cached_property
    def kind(self) -> str:
        """What kind of job it is."""
        return classify_job(self.run.program)

    @cached_property
    def host(self) -> HostSpeed | None:
        """How fast its hosts are; None where that can't be told."""
        return self.run.host_speed

    @cached_property
    def spread(self) -> RankSpread:
        """Variation among its ranks and steps."""
        return measure_rank_spread(self.program.tabulate_chosen_steps(self.program.measured_timeline))

    @cached_property
    def _memory_needs(self) -> MemoryNeeds:
        return estimate_memory_needs(self.program)

    @cached_property
    def _profiler_cost(self) -> ProfilerCost:
        return ProfilerCost(self.run, self.program)

    @cached_property
    def _contention(self) -> ContentionModel:
        return ContentionModel(self.program, self.run.gpu)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Apply a function to the one part."""
        return [function(item) for item in items]

    def replay(self, items: Sequence[PartOnTarget]) -> list[TimedPart]:
        """Replay the one part."""
        return [time_steps(PartWithRendezvous(item)) for item in items]

    def split_collectives(self, collectives: pl.DataFrame | None) -> Iterator[pl.DataFrame | None]:
        """Yield all collectives."""
        yield collectives

    def find_errors(self, targets: Sequence[PartTarget]) -> None:
        """Return None: the one part tells."""

    def insert_collectives(self, inserters: tuple[Inserter, ...]) -> "WholeJob":
        """Return the job with inserted collectives."""
        if inserters not in self._grown:
            program, notes = insert_all(self.program, inserters)
            self._grown[inserters] = WholeJob(self.run, program, self.layout, self.batch, notes)
        return self._grown[inserters]

    def judge_memory(self, gpu: Gpu, layouts: tuple[Layout, Layout] | None, in_flight: float = 1.0) -> MemoryFit:
        """Judge whether a rank fits."""
        held = compute_held_parameter_fraction(self.program, layouts)
        return judge_memory_fit(self.program, self.run.gpu, gpu, layouts, self._memory_needs, in_flight, held)

    def predict_contention(self, item: PartOnTarget, host_time: float) -> StepWithContention | None:
        """Predict the step with contention; None where little overlaps."""
        if self._contention.overlap < MIN_OVERLAP_PCT:
            return None
        found = self._contention.estimate(item.open().times["time_us"].to_numpy(), host_time)
        return StepWithContention(found.overlap_pct, found.uncontended.step_time_us, found.contended.step_time_us)

    def write_job_notes(self, replays: "JobReplays", step: StepTime, host_time: float) -> Iterator[Message]:
        """Note the profiler's own cost in a predicted step."""
        kernel_us = replays.items[0].open().times["time_us"].to_numpy()
        without_host_us = partial(replays.compute_step_us, Replay(host_time=NO_HOST))
        yield from self._profiler_cost.note(step, without_host_us, kernel_us, host_time)

    def finish(self, step: PredictedStep, items: Sequence[PartOnTarget], target: Target, host: HostTimes) -> Prediction:
        """Add the kernels and the program that was replayed."""
        opened = items[0].open()
        program = opened.programs[LIKELY]
        kernels = apply_edits_to(program, opened.times.drop(*KERNEL_COLUMNS, *INNER_COLUMNS, strict=False))
        return Prediction(
            **{one.name: getattr(step, one.name) for one in fields(step)},
            target=target,
            kernels=kernels,
            program=program,
            replayed_kernels=kernels,
            host=host,
        )


@dataclass
class JobReplays:
    """The replays of a job on one target; each is made once.

    Attributes:
        job: The job.
        items: Its parts on the target.
    """

    job: Job
    items: Sequence[PartOnTarget]
    _found: dict[Replay, StepTimes] = field(default_factory=dict)

    def run(self, wanted: Iterable[Replay]) -> None:
        """Make some replays, all of them together."""
        missing = tuple(one for one in dict.fromkeys(wanted) if self._find(one) is None)
        if missing:
            self._keep(missing, self.job.replay([replace(one, replays=missing) for one in self.items]))

    def predict_step(
        self, host: HostTimes, stages: tuple[Layout, Cluster] | None, others: Sequence[Replay] = ()
    ) -> "ReplayedStep":
        """Predict the step, with the likely, the low and the high times.

        Args:
            host: Factors on the time of the host's own work.
            stages: As of :class:`PartOnTarget`.
            others: Replays that will be asked for, too.

        Raises:
            LayoutError: The job can't be split into such stages.
        """
        likely, *ends = list_ends(host) if stages is None else list_joint_ends(host)
        wanted = tuple(dict.fromkeys((likely, *ends, *others)))
        first, *rest = (replace(one, replays=wanted) for one in self.items)
        timed = self.job.replay([replace(first, stages=stages), *rest])
        self._keep(wanted, timed)
        longer = dict(zip((likely, *ends), timed[0].longer, strict=True)) if timed[0].pipeline else {}
        step, *others_of = (
            self.job.steps.compute_median(self._found[one], self.job.program.step_scale, longer.get(one, 1.0))
            for one in (likely, *ends)
        )
        shortest = others_of.pop() if stages is None else None
        return ReplayedStep(step, pair_up(others_of), shortest, timed[0].pipeline)

    def _keep(self, wanted: Sequence[Replay], timed: Sequence[TimedPart]) -> None:
        for number, one in enumerate(wanted):
            self._found[one] = merge_steps([part.steps[number] for part in timed])

    def _find(self, wanted: Replay) -> StepTimes | None:
        """Return a replay that was made, whether or not more was measured in it."""
        return self._found.get(wanted) or self._found.get(replace(wanted, measures_gpu=True))

    def compute_step_us(self, wanted: Replay) -> float:
        """Compute the time of the median step of a replay."""
        self.run([wanted])
        found = self._find(wanted)
        assert found is not None
        return self.job.steps.compute_median_step_us(found.spans, self.job.program.step_scale)

    def predict_on_host(self, host: HostTimes) -> StepOnHost:
        """Predict the step with a host that is some times as fast as the measured one."""
        wanted = [replace(one, measures_gpu=False) for one in list_ends(host)]
        self.run(wanted)
        likely_us, *ends_us, shortest_us = (self.compute_step_us(one) for one in wanted)
        return StepOnHost(likely_us, *combine_ends(likely_us, pair_up(ends_us), shortest_us))


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A replayed step and its ends.

    Attributes:
        likely: The step with the likely times.
        effects: The step with the low and the high end of each part that is unknown, independent of one another.
        shortest: The step with the low end of all; None of a pipeline, whose parts have their ends together.
        pipeline: The pipeline that the job becomes; None without.
    """

    likely: StepTime
    effects: tuple[tuple[StepTime, StepTime], ...]
    shortest: StepTime | None
    pipeline: Pipeline | None


def list_ends(host: HostTimes) -> tuple[Replay, ...]:
    """List the replays for a step and the ends of its interval: of the kernels' times, of the host's, and low both."""
    likely = Replay(LIKELY, host.likely, LIKELY, measures_gpu=True)
    kernels = (replace(likely, kernels=end, unknown=end) for end in (LOW, HIGH))
    hosts = (replace(likely, host_time=end) for end in (host.low, host.high))
    return likely, *kernels, *hosts, replace(likely, kernels=LOW, host_time=host.low, unknown=LOW)


def list_joint_ends(host: HostTimes) -> tuple[Replay, ...]:
    """List the replays for a step in stages, where kernels, host and sends have their ends together."""
    return (
        Replay(LIKELY, host.likely, LIKELY, measures_gpu=True),
        Replay(LOW, host.low, LOW, measures_gpu=True),
        Replay(HIGH, host.high, HIGH, measures_gpu=True),
    )


def pair_up(ends: Sequence[Item]) -> tuple[tuple[Item, Item], ...]:
    """Pair the low and the high end of each part that is unknown."""
    return tuple(zip(ends[::2], ends[1::2], strict=True))
