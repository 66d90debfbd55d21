"""A job in parts of one rank each, which an engine works on and which meet at their collectives."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from predictors import Gpu
from predictors.transfer import StackErrors
from tracekit.analysis.contention import MIN_OVERLAP_PCT
from tracekit.fleet import job_errors
from tracekit.fleet.evidence import FleetEvidence, JobFacts
from tracekit.fleet.join import JoinedFleet
from tracekit.fleet.rank_part import EditedRank, RankPlace, try_edits
from tracekit.fleet.runner import FleetRunner
from tracekit.hosts import HostSpeed
from tracekit.messages import Message, fleets
from tracekit.messages import layouts as layout_messages
from tracekit.messages.predictions import CONTENTION_LEFT_OUT
from tracekit.parallelism.expert_parallel import compute_held_parameter_fraction
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.missing_collectives import Inserter
from tracekit.parallelism.stragglers import RankSpread, measure_rank_spread
from tracekit.prediction.job import Item, Job, JobReplays, Result
from tracekit.prediction.memory import MemoryFit, MemoryNeeds, judge_memory_fit
from tracekit.prediction.model import PredictedStep, Target
from tracekit.prediction.part import NO_HOST, PartOnTarget, PartTarget, Replay
from tracekit.prediction.profiler_cost import list_recorded, note_host_part
from tracekit.prediction.rounds import PartWithRendezvous, TimedPart, compress_part, time_steps
from tracekit.prediction.target_host import HostTimes
from tracekit.program import Program
from tracekit.replay.compressed import CompressedJob
from tracekit.replay.step_time import JobSteps, StepTime
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class MemoryQuestion:
    """A rank that is asked whether it fits; as :func:`tracekit.prediction.memory.judge_memory_fit` takes it."""

    place: RankPlace
    source: Gpu | None
    gpu: Gpu
    layouts: tuple[Layout, Layout]
    needs: MemoryNeeds
    in_flight: float


def judge_rank_memory(asked: MemoryQuestion) -> MemoryFit:
    """Judge whether a rank fits in another layout."""
    program = asked.place.read_whole()
    held = compute_held_parameter_fraction(program, asked.layouts)
    return judge_memory_fit(program, asked.source, asked.gpu, asked.layouts, asked.needs, asked.in_flight, held)


class RankedJob(Job):
    """A job whose ranks an engine works on.

    Args:
        runner: Works on the ranks.
        joined: The ranks.
        places: Where their tables are.
        run: The measured run, of whose kernels only the collectives are here.
        steps: Its steps.
    """

    def __init__(
        self, runner: FleetRunner, joined: JoinedFleet, places: Sequence[RankPlace], run: MeasuredRun, steps: JobSteps
    ) -> None:
        self.run, self.program, self.steps = run, run.program, steps
        self.places: Sequence[RankPlace] = places
        self.gpus_per_rank = joined.gpus_per_rank
        self._runner, self._joined = runner, joined
        self._errors: dict[str, tuple[StackErrors, ...]] = {}
        self._evidence: FleetEvidence | None = None

    def learn(self, run: MeasuredRun, evidence: FleetEvidence, steady: pl.DataFrame) -> None:
        """Learn what all ranks tell.

        Args:
            run: The measured run, with what is known of it now.
            evidence: What the ranks tell.
            steady: Their measured steps, as :func:`tracekit.parallelism.stragglers.measure_rank_spread` takes them.
        """
        self.program = replace(run.program, trains=evidence.facts.trains)
        self.run = replace(run, program=self.program)
        self._evidence, self._steady = evidence, steady
        self.describe(evidence.facts)

    def describe(self, facts: JobFacts) -> None:
        """Take a rank's word for the job's layout, its batch, and the memory that a rank needs."""
        self.layout, self.batch, self._memory_needs = facts.layout, facts.batch, facts.memory

    @property
    def evidence(self) -> FleetEvidence:
        """What all ranks tell."""
        assert self._evidence is not None
        return self._evidence

    @property
    def facts(self) -> JobFacts:
        """What a rank tells of the job."""
        return self.evidence.facts

    @property
    def kind(self) -> str:
        """What kind of job it is."""
        return self.facts.kind

    @property
    def host(self) -> HostSpeed | None:
        """How fast its hosts are; None where that can't be told."""
        return self.evidence.host

    @property
    def spread(self) -> RankSpread:
        """Variation among its ranks and steps."""
        return measure_rank_spread(self._steady)

    def edit(self, edits: Sequence[str]) -> "RankedJob":
        """Return the job with what-if edits.

        Raises:
            WhatIfError: An edit finds nothing to change on any rank.
        """
        asked = [replace(place, edits=tuple(edits)) for place in self.places]
        found = self._runner.run_round(try_edits, asked, fleets.EDITING_RANKS)
        for number in range(len(edits)):
            errors = [one.errors[number] for one in found]
            if all(errors) and errors[0] is not None:
                raise errors[0]
        edited = [
            replace(place, edits=tuple(text for text, error in zip(edits, one.errors, strict=True) if error is None))
            for place, one in zip(self.places, found, strict=True)
        ]
        job = RankedJob(self._runner, self._joined, edited, self.run, self.steps)
        job.learn(self.run, self.evidence, self._steady)
        job.program = replace(self._uncount(found), edits=tuple(edits))
        return job

    def _uncount(self, found: Sequence[EditedRank]) -> Program:
        """Return the program without the steps of the collectives that edits removed."""
        kernels = self.program.kernels
        gone = np.zeros(kernels.height, np.bool_)
        for place, one in zip(self.places, found, strict=True):
            mine = (kernels["rank"] == place.rank.number).to_numpy()
            gone |= mine & np.isin(kernels["place"].to_numpy(), one.uncounted)
        return self.program.replace_tables(kernels=kernels.with_columns(kernels["step"].set(pl.Series(gone), None)))

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Apply a function to something of each rank."""
        return self._runner.run_round(function, items, fleets.PREDICTING_RANKS)

    def replay(self, items: Sequence[PartOnTarget]) -> list[TimedPart]:
        """Replay all ranks together: each is compressed, their rendezvous take place, each is replayed between them."""
        compressed = self._runner.run_round(compress_part, items, fleets.LINKING_RANKS)
        waits = [one.links.rendezvous for one in compressed]
        arrivals = [one.links.arrivals for one in compressed]
        graphs = [one.graph for one in compressed]
        job = CompressedJob(graphs, waits, arrivals, self._joined.rendezvous)
        if job.dropped and not any(one.template is fleets.RENDEZVOUS_DROPPED for one in self._runner.warnings):
            self._runner.warnings.append(fleets.RENDEZVOUS_DROPPED(collectives=job.dropped))
        met = [job.replay(which) for which in range(len(graphs[0].lag_ns))]
        bound = [
            PartWithRendezvous(item, tuple(one[own] for one in met)) for item, own in zip(items, waits, strict=True)
        ]
        return self._runner.run_round(time_steps, bound, fleets.REPLAYING_RANKS)

    def split_collectives(self, collectives: pl.DataFrame | None) -> Iterator[pl.DataFrame | None]:
        """Yield the collectives of each rank, numbered as its kernels."""
        if collectives is None:
            yield from (None for _ in self.places)
            return
        own = self._joined.tables.kernels.select("rank", pl.col("place").cast(pl.UInt32))
        rows = collectives.with_columns(own[collectives["row"]])
        for place in self.places:
            mine = rows.filter(pl.col("rank") == place.rank.number)
            yield mine.with_columns(row="place").drop("rank", "place")

    def find_errors(self, targets: Sequence[PartTarget]) -> tuple[StackErrors, ...] | None:
        """Find what the model misses of all ranks' kernels on their GPU; None if nothing is carried from there."""
        first = targets[0]
        if first.source is None or first.is_same_gpu:
            return None
        key = f"{first.gpu.slug if first.calibrations else ''} {first.layouts}"
        if key not in self._errors:
            items = [PartOnTarget(place, one) for place, one in zip(self.places, targets, strict=True)]
            cells = self.map(job_errors.sort_errors, items)
            bounds = job_errors.bound_errors(cells)
            between = self.map(job_errors.select_errors, [job_errors.BoundErrors(one, bounds) for one in items])
            self._errors[key] = job_errors.merge_errors(cells, bounds, pl.concat(between))
        return self._errors[key]

    def insert_collectives(self, inserters: tuple[Inserter, ...]) -> Job:
        """Refuse: several ranks were read.

        Raises:
            LayoutError: Always.
        """
        raise LayoutError(layout_messages.INSERTION_INTO_SEVERAL_RANKS())

    def judge_memory(self, gpu: Gpu, layouts: tuple[Layout, Layout] | None, in_flight: float = 1.0) -> MemoryFit:
        """Judge whether a rank fits; the first one tells."""
        source, needs = self.run.gpu, self._memory_needs
        if layouts is None:
            return judge_memory_fit(self.program, source, gpu, known=needs)
        asked = MemoryQuestion(self.places[0], source, gpu, layouts, needs, in_flight)
        return self.map(judge_rank_memory, [asked])[0]

    def predict_contention(self, item: PartOnTarget, host_time: float) -> None:
        """Return None: a replay with contention takes all kernels at once."""

    def write_job_notes(self, replays: JobReplays, step: StepTime, host_time: float) -> Iterator[Message]:
        """Note that contention is left out, and the profiler's own cost in a predicted step."""
        if self.evidence.overlap_pct >= MIN_OVERLAP_PCT:
            yield CONTENTION_LEFT_OUT(overlap_pct=self.evidence.overlap_pct, apart_us=step.step_time_us)
        if step.step_time_us:
            host = 1 - replays.compute_step_us(Replay(host_time=NO_HOST)) / step.step_time_us
            held_us = sum(one.held_ns for one in self.evidence.ranks) / 1e3 / self.run.chosen_steps.height
            recorded = list_recorded(self.run.trace, has_shapes=self.facts.shapes_recorded)
            yield from note_host_part(host, held_us, recorded)

    def finish(
        self, step: PredictedStep, items: Sequence[PartOnTarget], target: Target, host: HostTimes
    ) -> PredictedStep:
        """Return the prediction: its kernels stay with the ranks."""
        return step
