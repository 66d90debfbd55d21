"""Predict a job on a cluster of several kinds of GPUs.

Each kind is predicted as if all ranks had it, over the slowest network. Then the ranks are replayed together, one of
each kind: in collectives between kinds the faster ones wait::

    H100 | backward | waits            | all-reduce | optimizer |
    A100 | backward                    | all-reduce | optimizer    |

Of a pipeline, whole stages have one kind, and the schedule of their passes takes the place of the joint replay.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, product

import numpy as np
import polars as pl

from predictors import Gpu, Resolution
from tracekit.arrays import Ints
from tracekit.comm import Cluster
from tracekit.comm.cluster import USABLE_MEMORY_FRACTION, GpuKind
from tracekit.messages import Message
from tracekit.messages import layouts as messages
from tracekit.messages import predictions as told
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.pipeline_parallel import ScheduledStep, StageKinds, predict_unlike_stages
from tracekit.parallelism.process_groups import infer_group_roles
from tracekit.prediction.energy import StepEnergy, compute_idle_w
from tracekit.prediction.job import WholeJob
from tracekit.prediction.largest_batch import count_rank_samples
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.model import KindOfRanks, PredictedStep, Prediction, Target
from tracekit.prediction.note_order import order_notes
from tracekit.prediction.notes import note_memory_fit
from tracekit.prediction.predictor import Predictor
from tracekit.program import Program
from tracekit.replay.engine import replay_meeting
from tracekit.replay.step_time import StepTime

MAX_TRIED_SAMPLES = 64
"""Samples around each kind's exact share of the batch that are tried, so that whole ones add up to the batch."""
DROPPED_NOTES = frozenset((told.CLUSTER_PARTLY_USED, told.BATCH_SCALED, told.JOB_LAYOUT))
"""Notes of one kind that don't hold for the job."""


def predict_target(predictor: Predictor, target: Target) -> PredictedStep:
    """Predict the step on one target, whether its GPUs are alike or not.

    Raises:
        ClusterError: The job doesn't fit on the cluster.
        LayoutError: The job can't be laid out in this way.
    """
    if target.cluster is None or not target.cluster.kinds:
        plain = target.layout and replace(target.layout, balance=False)
        return predictor.predict(replace(target, layout=plain))
    return UnlikeGpus(predictor, target, target.cluster).predict()


@dataclass(frozen=True, slots=True)
class _JointStep:
    """The ranks of all kinds together.

    Attributes:
        each: The prediction of each kind by itself, of the same work.
        step_us: The step.
        waits: What each kind's step is beside that of the others.
        own_us: When each kind's ranks would be done without the others.
        schedule: Of a pipeline, its stages.
    """

    each: tuple[Prediction, ...]
    step_us: float
    waits: tuple[StepTime, ...]
    own_us: tuple[float, ...]
    schedule: ScheduledStep | None = None

    @property
    def slowest(self) -> int:
        """The kind that would be done last."""
        return int(np.argmax([one.step.step_time_us for one in self.each]))


class UnlikeGpus:
    """The prediction of a job on a cluster of several kinds of GPUs.

    Args:
        predictor: Predicts the job.
        target: The target.
        cluster: Its cluster.

    Raises:
        LayoutError: The layout doesn't divide over the kinds, or it isn't known which ranks have which.
    """

    def __init__(self, predictor: Predictor, target: Target, cluster: Cluster) -> None:
        job = predictor.job
        if not isinstance(job, WholeJob):
            raise LayoutError(messages.UNLIKE_GPUS_RANK_BY_RANK())
        self._predictor, self._job, self._target, self._cluster = predictor, job, target, cluster
        self._layout = target.layout or job.layout or Layout(dp=job.run.trace.world_size)
        self._ranks = _count_ranks(cluster, self._layout, job)

    def predict(self) -> PredictedStep:
        """Predict the step."""
        alike = (self._layout.batch,) * len(self._ranks)
        even = self._join(alike)
        fastest = min(even.each, key=lambda one: one.step.step_time_us)
        if not self._layout.balance:
            return self._describe(even, fastest)
        shared = self._join(alike, by_speed=True) if self._layout.pp > 1 else self._join(self._share_batch(even))
        return self._describe(min(even, shared, key=lambda one: one.step_us), fastest)

    def _predict_kind(self, number: int, batch: float) -> Prediction:
        """Predict the step as if all GPUs were of one kind."""
        cluster = self._cluster.kinds[number].cluster
        target = replace(self._target, gpu=Resolution(cluster.gpu, cluster.gpu.slug, "slug"), cluster=cluster)
        layout = self._layout if self._target.layout else None
        if layout:
            target = replace(target, layout=replace(layout, balance=False, batch=batch))
        found = self._predictor.predict(target)
        assert isinstance(found, Prediction)
        return found

    def _join(self, batches: Sequence[float], *, by_speed: bool = False) -> _JointStep:
        """Predict each kind by itself, then all together.

        Args:
            batches: Batch of a rank of each kind, relative to the trace's.
            by_speed: Whether faster stages get more layers.
        """
        each = tuple(self._predict_kind(number, batch) for number, batch in enumerate(batches))
        return self._schedule_stages(each, by_speed=by_speed) if self._layout.pp > 1 else self._replay_together(each)

    def _replay_together(self, each: tuple[Prediction, ...]) -> _JointStep:
        programs, alone = [one.program for one in each], [one.replay_timeline() for one in each]
        if any(not np.array_equal(line.graph.src, alone[0].graph.src) for line in alone[1:]):
            raise LayoutError(messages.UNLIKE_GPUS_OF_UNLIKE_PROGRAMS(cluster=self._cluster.slug))
        rows = _find_meetings(programs[0], self._layout, [*accumulate(self._ranks)][:-1])
        joint = replay_meeting(alone, rows)
        before = [program.compute_median(line) for program, line in zip(programs, alone, strict=True)]
        after = [program.compute_median(line) for program, line in zip(programs, joint, strict=True)]
        slowest = int(np.argmax([one.step.step_time_us for one in each]))
        longer = max(one.step_time_us for one in after) / before[slowest].step_time_us
        waits = tuple(_add_difference(one.step, *pair) for one, *pair in zip(each, before, after, strict=True))
        own_us = tuple(one.step.step_time_us for one in each)
        return _JointStep(each, own_us[slowest] * longer, waits, own_us)

    def _schedule_stages(self, each: tuple[Prediction, ...], *, by_speed: bool) -> _JointStep:
        stage = self._layout.world_size // self._layout.pp
        of_stage = np.repeat(np.arange(len(self._ranks)), [ranks // stage for ranks in self._ranks])
        programs, lines = [one.program for one in each], [one.replay_timeline() for one in each]
        clusters = [kind.cluster for kind in self._cluster.kinds]
        slowest = int(np.argmax([one.step.step_time_us for one in each]))
        alike = StageKinds(np.full(self._layout.pp, slowest))
        before = predict_unlike_stages(programs, lines, self._layout, clusters, alike)
        after = predict_unlike_stages(programs, lines, self._layout, clusters, StageKinds(of_stage, by_speed=by_speed))
        slowest_us = each[slowest].step.step_time_us
        scale = slowest_us / before.step_us
        busy_us = scale * (after.busy_us + after.tail_us)
        own_us = tuple(float(busy_us[of_stage == number].mean()) for number in range(len(each)))
        shares = [after.layers[of_stage == number].mean() / after.layers.mean() for number in range(len(each))]
        waits = tuple(
            replace(one.step, kernel_time_us=float(part * one.step.kernel_time_us))
            for one, part in zip(each, shares, strict=True)
        )
        return _JointStep(each, slowest_us * (after.step_us / before.step_us), waits, own_us, after)

    def _share_batch(self, even: _JointStep) -> tuple[float, ...]:
        """Share the batch by speed, in whole samples; each kind's step grows evenly with its samples.

        Raises:
            LayoutError: The trace doesn't tell how many samples a rank has.
        """
        traced = count_rank_samples(self._job.program, self._job.batch, self._job.layout or Layout())
        samples = round(traced * self._layout.batch)
        if samples < 2:
            raise LayoutError(messages.UNLIKE_GPUS_WITHOUT_SAMPLES())
        own_us = np.array(even.own_us)
        ranks = np.array(self._ranks) // (self._layout.tp * self._layout.cp)
        tried = np.maximum(np.rint(samples / own_us * ranks.sum() / (ranks / own_us).sum()), 1).astype(np.int64)
        if (tried == samples).all():
            return (self._layout.batch,) * len(self._ranks)
        there = [self._predict_kind(number, one / traced) for number, one in enumerate(tried.tolist())]
        moved_us = np.array([one.step.step_time_us for one in there]) - own_us
        per_sample = np.divide(moved_us, tried - samples, out=own_us / samples, where=tried != samples)
        per_sample = np.clip(per_sample, 1e-6, own_us / samples)
        best = share_samples(samples, ranks, own_us - samples * per_sample, per_sample)
        return tuple(one / traced for one in best.tolist())

    def _describe(self, joint: _JointStep, fastest: Prediction) -> PredictedStep:
        """Describe the job's step: all but its times, waits and costs is that of the slowest kind.

        Args:
            joint: The step.
            fastest: The step with the GPUs of the fastest kind alone.
        """
        slowest, each = joint.each[joint.slowest], joint.each
        longer = joint.step_us / slowest.step.step_time_us
        weights = [ranks / sum(self._ranks) for ranks in self._ranks]
        kinds = tuple(self._list_kinds(joint))
        fits = [self._judge_memory(*one) for one in zip(each, kinds, self._cluster.kinds, strict=True)]
        memory = min(fits, key=lambda one: {False: 0, None: 1, True: 2}[one.fits])
        prices = [self._predictor.prices.find(kind.cluster.gpu, self._cluster) for kind in self._cluster.kinds]
        batch_ratio = _average(weights, [one.batch_ratio for one in each], joint.slowest)
        pipeline = slowest.pipeline
        if pipeline and joint.schedule:
            _, waits_us, busiest, _ = joint.schedule.figures
            pipeline = replace(pipeline, bubble=waits_us / joint.schedule.step_us, slowest=busiest)
        busy_us, exposed_us, waiting_us = (
            min(_average(weights, [getattr(one, name) for one in joint.waits], joint.slowest), joint.step_us)
            for name in ("kernel_time_us", "exposed_comm_us", "waiting_us")
        )
        step = replace(
            slowest.step,
            step_time_us=joint.step_us,
            span_us=slowest.step.span_us * longer,
            mean_us=slowest.step.mean_us * longer,
            kernel_time_us=busy_us,
            exposed_comm_us=exposed_us,
            waiting_us=waiting_us,
        )
        energies = [
            _lengthen_energy(one.energy, joint.step_us - one.step.step_time_us, kind.cluster.gpu)
            for one, kind in zip(each, self._cluster.kinds, strict=True)
        ]
        energy = StepEnergy(
            *(
                _average(weights, [getattr(one, field.name) for one in energies], joint.slowest)
                for field in fields(StepEnergy)
            )
        )
        return replace(
            slowest,
            step=step,
            low_us=longer * max(one.low_us for one in each),
            high_us=longer * max(one.high_us for one in each),
            mean_low_us=longer * max(one.mean_low_us for one in each),
            mean_high_us=longer * max(one.mean_high_us for one in each),
            speedup=None if slowest.speedup is None else slowest.speedup / longer,
            cluster_gpus=self._cluster.gpus,
            energy=energy,
            notes=order_notes(
                (*self._write_notes(joint, memory), *self._note_kinds(joint, kinds, fastest)), joint.step_us
            ),
            memory=memory,
            layout=self._target.layout or slowest.layout,
            price=_average(weights, [one for one in prices if one is not None], joint.slowest)
            if None not in prices
            else None,
            rented=self._cluster.gpus,
            pipeline=pipeline,
            batch_ratio=batch_ratio,
            batch=self._job.batch.scale(batch_ratio) if self._job.batch else None,
            forecast=None,
            experience=None,
            same_host=slowest.same_host.scale(longer) if slowest.same_host else None,
            target=replace(self._target, layout=self._target.layout or slowest.target.layout),
            kinds=kinds,
        )

    def _list_kinds(self, joint: _JointStep) -> list[KindOfRanks]:
        """List the kinds with their share of the work, and how long each waits."""
        stage = self._layout.world_size // self._layout.pp
        layers = joint.schedule.layers if joint.schedule else np.empty(0, np.int64)
        ends = [*accumulate(self._ranks, initial=0)]
        traced = count_rank_samples(self._job.program, self._job.batch, self._job.layout or Layout())
        return [
            KindOfRanks(
                gpu=kind.cluster.gpu.slug,
                name=kind.cluster.gpu.name,
                gpus=kind.gpus,
                own_us=own_us,
                idle_us=max(joint.step_us - own_us, 0.0),
                samples=(one.layout or self._layout).batch * traced if traced > 1 else None,
                layers=tuple(layers[ends[number] // stage : ends[number + 1] // stage].tolist()),
            )
            for number, (kind, one, own_us) in enumerate(
                zip(self._cluster.kinds, joint.each, joint.own_us, strict=True)
            )
        ]

    def _judge_memory(self, one: Prediction, kind: KindOfRanks, of_kind: GpuKind) -> MemoryFit:
        """Judge whether a rank of a kind fits: a stage with more layers than its even part needs as much more."""
        fit, stages = one.memory, one.pipeline
        if not (stages and kind.layers) or max(kind.layers) <= -(-stages.layers // stages.stages):
            return fit
        room, more = USABLE_MEMORY_FRACTION * of_kind.cluster.gpu.memory_bytes, max(kind.layers) / stages.layers
        if fit.min_bytes is None or fit.max_bytes is None:
            return replace(fit, fits=None, reason=told.MEMORY_UNKNOWN(usable_bytes=room))
        least, most = (size * more * stages.stages for size in (fit.min_bytes, fit.max_bytes))
        shown = {"min_bytes": least, "max_bytes": most, "usable_bytes": room}
        fits = False if least > room else True if most <= room else None
        return MemoryFit(least, most, fits, told.MEMORY_BOUNDS(**shown))

    def _write_notes(self, joint: _JointStep, memory: MemoryFit) -> Iterator[Message]:
        """Write the notes of all kinds, each once, but those that hold for one kind alone."""
        slowest = joint.each[joint.slowest]
        own = {note.template for note in slowest.notes}
        others = dict.fromkeys(note for one in joint.each for note in one.notes if note.template not in own)
        dropped = DROPPED_NOTES | {note_memory_fit(one.memory).template for one in joint.each}
        yield from (note for note in (*slowest.notes, *others) if note.template not in dropped)
        yield told.JOB_LAYOUT(layout=str(self._layout))
        yield note_memory_fit(memory)

    def _note_kinds(self, joint: _JointStep, kinds: Sequence[KindOfRanks], fastest: Prediction) -> Iterator[Message]:
        """Note what the faster kinds wait, and what would gain most."""
        slow = max(kinds, key=lambda kind: kind.own_us)
        waits = [
            told.UNLIKE_GPUS_WAIT(
                gpus=kind.gpus, name=kind.name, idle_us=kind.idle_us, idle_pct=100 * kind.idle_us / joint.step_us
            )
            for kind in kinds
            if kind is not slow
        ]
        yield told.UNLIKE_GPUS_PACE(gpus=slow.gpus, name=slow.name, waits=waits)
        if self._layout.balance:
            shares = [
                told.UNLIKE_GPUS_SHARE(name=kind.name, layers=[*map(str, kind.layers)])
                if kind.layers
                else told.UNLIKE_GPUS_SAMPLES(name=kind.name, samples=kind.samples or 0.0)
                for kind in kinds
            ]
            yield told.UNLIKE_GPUS_BALANCED(shares=shares)
        elif joint.schedule is None:
            speeds = sum(ranks / own_us for ranks, own_us in zip(self._ranks, joint.own_us, strict=True))
            yield told.UNLIKE_GPUS_BALANCE_GAINS(shared_us=sum(self._ranks) / speeds)
        yield told.UNLIKE_GPUS_ALIKE(name=fastest.target.gpu.gpu.name, whole_us=fastest.step.step_time_us)


def _count_ranks(cluster: Cluster, layout: Layout, job: WholeJob) -> tuple[int, ...]:
    """Count the ranks of each kind of GPU.

    Raises:
        LayoutError: There are other GPUs than ranks, or a group that has to be of one kind isn't.
    """
    if (job.layout or Layout()).pp > 1:
        raise LayoutError(messages.UNLIKE_GPUS_OF_STAGES())
    ranks = [kind.gpus // job.gpus_per_rank for kind in cluster.kinds]
    if layout.world_size != sum(ranks) or sum(ranks) * job.gpus_per_rank != cluster.gpus:
        raise LayoutError(
            messages.UNLIKE_GPUS_LEFT_OVER(ranks=layout.world_size, cluster=cluster.slug, gpus=cluster.gpus)
        )
    stage = layout.world_size // layout.pp
    what, size, option = ("stages", stage, "--pp") if layout.pp > 1 else ("replicas", layout.tp * layout.cp, "--tp")
    for kind, count in zip(cluster.kinds, ranks, strict=True):
        if count % size:
            raise LayoutError(
                messages.UNLIKE_GPUS_IN_GROUP(
                    kind=kind.cluster.gpu.name,
                    gpus=kind.gpus,
                    cluster=cluster.slug,
                    what=what,
                    ranks=size,
                    option=option,
                )
            )
    return tuple(ranks)


def _find_meetings(program: Program, layout: Layout, borders: Sequence[int]) -> Ints:
    """Find the collectives in which ranks of several kinds meet.

    Args:
        program: The program, inserted collectives included.
        layout: Layout on the target.
        borders: First rank of each kind but the first.
    """
    roles = infer_group_roles(program)

    def spans(role: str) -> bool:
        block = layout.get_group_size(role) * layout.get_group_stride(role)
        return any(border % block for border in borders)

    meeting = [role for role in roles["role"].unique().to_list() if role != "pp" and spans(role)]
    rows: Ints = roles.filter(pl.col("role").is_in(meeting))["row"].to_numpy()
    return rows


def share_samples(samples: int, ranks: Ints, fixed_us: Sequence[float], sample_us: Sequence[float]) -> Ints:
    """Share a batch over kinds of GPUs in whole samples, so that the last one is done as early as possible.

    Example: two ranks of each kind with 8 samples each, of which one kind takes 1 us a sample and the other 3: 12 and
    4 samples, each 12 us.

    Args:
        samples: Samples of each rank where all have as many.
        ranks: Ranks of each kind, of which each holds the model once.
        fixed_us: Time of each kind's step that its samples don't change.
        sample_us: Time of one sample on each kind.

    Returns:
        Samples of a rank of each kind. All ranks together have as many as before.
    """
    fixed, each, total = np.asarray(fixed_us), np.asarray(sample_us), samples * int(ranks.sum())
    last_us = (total + (ranks * fixed / each).sum()) / (ranks / each).sum()
    exact = (last_us - fixed) / each
    reach = min(int(ranks.max()) + 1, MAX_TRIED_SAMPLES)
    tried = [range(max(int(one) - reach, 1), max(int(one), 1) + reach) for one in exact[:-1]]
    firsts = np.array([*product(*tried), (samples,) * (ranks.size - 1)])
    left = total - firsts @ ranks[:-1]
    shares = np.column_stack([firsts, left // ranks[-1]])[(left % ranks[-1] == 0) & (left >= ranks[-1])]
    done_us = (fixed + shares * each).max(axis=1)
    best: Ints = shares[np.argmin(done_us)]
    return best


def _average(weights: Sequence[float], values: Sequence[float], base: int) -> float:
    """Average values by weight; equal ones to the last digit."""
    first = values[base]
    return first + sum(weight * (value - first) for weight, value in zip(weights, values, strict=True))


def _add_difference(step: StepTime, before: StepTime, after: StepTime) -> StepTime:
    """Add to a step what its GPU times differ between two replays: it is those of a rank that waits for others."""
    added = {
        name: max(getattr(step, name) + (getattr(after, name) - getattr(before, name)), 0.0)
        for name in ("kernel_time_us", "exposed_comm_us", "waiting_us")
    }
    return replace(step, **added)


def _lengthen_energy(energy: StepEnergy, longer_us: float, gpu: Gpu) -> StepEnergy:
    """Lengthen a step in which the GPU only waits for others, at idle power."""
    if longer_us <= 0:
        return energy
    joules = compute_idle_w(gpu) * longer_us / 1e6
    whole = energy.joules + joules
    power_w = whole / (energy.joules / energy.power_w + longer_us / 1e6)
    spread = (energy.low_w / energy.power_w, energy.high_w / energy.power_w)
    return StepEnergy(
        whole,
        energy.low_joules + joules,
        energy.high_joules + joules,
        power_w,
        power_w * spread[0],
        power_w * spread[1],
        energy.limit_w,
    )
