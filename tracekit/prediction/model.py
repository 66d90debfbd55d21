"""Define the results of a prediction."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

import polars as pl

from predictors import PredictorError, Resolution, resolve_gpu
from tracekit.comm import Cluster
from tracekit.errors import TracekitError
from tracekit.format import format_duration, format_interval
from tracekit.messages import Message
from tracekit.messages.reports import TARGET_NOT_PREDICTED
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.pipeline_parallel import Pipeline
from tracekit.prediction.batch import StepBatch
from tracekit.prediction.cost import UNPRICED, Prices
from tracekit.prediction.energy import StepEnergy
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.question import DEFAULT_QUESTION, Question
from tracekit.prediction.target_host import MEASURED_HOST, HostTimes
from tracekit.program import Program, round_to_ns
from tracekit.replay.engine import Timeline, replay
from tracekit.replay.step_time import StepTime
from tracekit.run import MeasuredRun
from tracekit.scoreboard import Forecast
from tracekit.whatif import WhatIfResult


@dataclass(frozen=True, slots=True)
class Coverage:
    """Shares of the step's GPU time by how they were predicted, in percent.

    Attributes:
        modelled: Predicted from shapes.
        scaled: Scaled by the resource that bounds kernels of their class.
        unknown: Kept as measured.
        inferred: Predicted from the size of the output and the measured time, without shapes.
    """

    modelled: float
    scaled: float
    unknown: float
    inferred: float = 0.0


@dataclass(frozen=True, slots=True)
class StepWithContention:
    """The step with contention between overlapping kernels, as :mod:`tracekit.analysis.contention` models it.

    Attributes:
        overlap: Percent of the kernels' measured time in which another kernel or a collective ran on the same GPU.
        apart_us: Step time without contention.
        step_time_us: Step time with contention.
    """

    overlap: float
    apart_us: float
    step_time_us: float


@dataclass(frozen=True, slots=True)
class StepOnHost:
    """The step with one CPU of those that the target may have.

    Attributes:
        step_time_us: Step time.
        low_us: Lower end of its 90 % interval.
        high_us: Upper end.
    """

    step_time_us: float
    low_us: float
    high_us: float

    def scale(self, factor: float) -> "StepOnHost":
        """Return the step with all times multiplied by a factor."""
        return StepOnHost(factor * self.step_time_us, factor * self.low_us, factor * self.high_us)


@dataclass(frozen=True, slots=True)
class Experience:
    """Outcomes of earlier predictions that changed an interval.

    Attributes:
        outcomes: Number of outcomes.
        inside: How many of them lay in their interval.
        factor: Factor on the interval's half-widths, as logarithms.
        law_offsets: Logarithms of the factors on predicted times, by family of kernels.
    """

    outcomes: int
    inside: int
    factor: float
    law_offsets: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KindOfRanks:
    """The ranks of a job that have one of several kinds of GPUs.

    Attributes:
        gpu: Canonical name of the GPU.
        name: Its display name.
        gpus: Number of them.
        own_us: When they would be done with a step without the others; of a pipeline, how long their stages work.
        idle_us: How long they wait for others in a step.
        samples: Samples of each rank's pass; None where unknown.
        layers: Layers of each of their stages; empty without a pipeline.
    """

    gpu: str
    name: str
    gpus: int
    own_us: float
    idle_us: float
    samples: float | None = None
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """The GPU or cluster to predict.

    Attributes:
        gpu: The GPU, and how its name was resolved.
        cluster: The cluster that connects the GPUs; None if only the GPU was named.
        layout: Layout of the job there; None as in the trace.
        is_gpu_requested: Whether the cluster's GPU was also requested without a cluster.
        links: The usual nodes of the GPU, whose links are assumed where only the GPU was named; None where they aren't.
    """

    gpu: Resolution
    cluster: Cluster | None = None
    layout: Layout | None = None
    is_gpu_requested: bool = False
    links: Cluster | None = None

    @property
    def label(self) -> str:
        """Name of the cluster, or of the GPU."""
        slug: str = self.cluster.slug if self.cluster else self.gpu.gpu.slug
        return slug


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """The traced step on one target: plain data, without tables or graphs.

    Attributes:
        gpu: Canonical name of the GPU.
        name: Display name of the cluster, or of the GPU.
        cluster: Name of the cluster that connects the GPUs; None if only the GPU was named.
        step: The median step.
        low_us: Lower end of the step time's 90 % interval. Where the target's CPU wasn't given, it holds those usual
            beside such GPUs.
        high_us: Upper end.
        mean_low_us: Lower end of the mean step's 90 % interval.
        mean_high_us: Upper end.
        speedup: Measured step time over predicted; None of a program that never ran.
        cluster_gpus: GPUs of the cluster; None if only the GPU was named.
        coverage: How the GPU time was predicted.
        energy: Energy of the step on one GPU.
        notes: Assumptions and limits of this prediction.
        memory: The GPU memory that a rank needs, and whether it fits.
        ranks: Ranks of the job.
        gpus_per_rank: GPUs that each of them drives.
        rented: GPUs that have to be rented for that, which dollars count: whole instances of a cloud.
        layout: Layout of the job there; None where the trace's is unknown.
        price: Dollars for an hour of one GPU; None if it wasn't given.
        contention: The step with contention; None where less than 5 % of the kernels' time overlaps, and for the GPU of
            the trace.
        same_host: The step with a CPU like the trace's; None where the CPU hardly changes it, and where one was given.
        pipeline: The pipeline of stages that the trace doesn't have; None without.
        batch_ratio: What the job processes in a step, relative to the trace.
        batch: What the job processes in a step; None where unknown.
        forecast: What the scoreboard keeps of it; None without an interval.
        experience: The outcomes of earlier predictions that changed the interval; None where none did.
        kinds: The ranks by their kind of GPU, where the cluster has several: all else of one GPU is that of the slowest
            kind, ``price`` the mean. Empty where all are alike.
        mfu: Percent of the step that its products take at the GPU's peak; None before a report counts them.
        hfu: The same with products that are computed again.
    """

    gpu: str
    name: str
    cluster: str | None = None
    cluster_gpus: int | None = None
    step: StepTime
    low_us: float
    high_us: float
    mean_low_us: float
    mean_high_us: float
    speedup: float | None
    coverage: Coverage
    energy: StepEnergy
    notes: tuple[Message, ...]
    memory: MemoryFit
    ranks: int = 1
    gpus_per_rank: int = 1
    rented: int = 1
    layout: Layout | None = None
    price: float | None = None
    contention: StepWithContention | None = None
    same_host: StepOnHost | None = None
    pipeline: Pipeline | None = None
    batch_ratio: float = 1.0
    batch: StepBatch | None = None
    forecast: Forecast | None = None
    experience: Experience | None = None
    kinds: tuple[KindOfRanks, ...] = ()
    mfu: float | None = None
    hfu: float | None = None

    def to_plain(self) -> "PredictedStep":
        """Return the numbers and notes alone."""
        return PredictedStep(**{one.name: getattr(self, one.name) for one in fields(PredictedStep)})

    @property
    def label(self) -> str:
        """Name of the cluster, or of the GPU."""
        return self.cluster or self.gpu

    @property
    def summary(self) -> str:
        """Name, step time and speedup."""
        faster = "" if self.speedup is None else f" ({self.speedup:.2f}x)"
        return f"{self.label} {format_duration(self.step.step_time_us)}{faster}"

    @property
    def speedup_per_sample(self) -> float | None:
        """Throughput relative to the trace; None of a program that never ran."""
        return None if self.speedup is None else self.speedup * self.batch_ratio

    @property
    def gpus(self) -> int:
        """GPUs in use."""
        return self.ranks * self.gpus_per_rank

    @property
    def dollars_per_1000_steps(self) -> float | None:
        """Dollars for 1,000 steps, of their mean, on all GPUs rented; None without a price."""
        return compute_cost(self.price, self.rented, self.step.mean_us)

    @property
    def dollars_per_1000_traced_steps(self) -> float | None:
        """Dollars for the samples of 1,000 traced steps on all GPUs rented; None without a price."""
        return None if self.dollars_per_1000_steps is None else self.dollars_per_1000_steps / self.batch_ratio

    @property
    def per_second(self) -> float | None:
        """Samples or tokens per second of the whole job; None where its batch is unknown."""
        return self.batch.compute_throughput(self.step.mean_us) if self.batch else None

    @property
    def joules_per_unit(self) -> float | None:
        """Joules for a sample or token on all GPUs in use; None where the batch is unknown."""
        return compute_joules_per_unit(self.energy, self.step, self.gpus, self.batch)

    @property
    def dollars_per_million(self) -> float | None:
        """Dollars for a million samples or tokens on all GPUs rented; None without a price or a batch."""
        return compute_cost_per_million(self.price, self.rented, self.per_second)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(PredictedStep):
    """The traced step on one target, with the times of its kernels and the program that was replayed.

    Attributes:
        target: The GPU and how its name was resolved, the cluster, and the layout there.
        kernels: One row per kernel of the kernel table, as ``predictors.predict`` returns it; times that can't be
            predicted are kept as measured.
        program: The program that was replayed, inserted kernels included: the trace's kernels come first.
        replayed_kernels: Like ``kernels``, for all kernels of ``program``.
        inserted_us: Time of inserted kernels by family, over the chosen steps.
        host: Factors on the duration of the host's own work.
    """

    target: Target
    kernels: pl.DataFrame
    program: Program
    replayed_kernels: pl.DataFrame
    inserted_us: Mapping[str, float] = field(default_factory=dict)
    host: HostTimes = MEASURED_HOST

    def replay_timeline(self, host_time: float | None = None) -> Timeline:
        """Return the timeline of the predicted steps, before any split into stages.

        Args:
            host_time: Factor on the duration of the host's own work; None for the likely one.
        """
        durations_ns = round_to_ns(self.replayed_kernels["time_us"].to_numpy() * 1e3, "kernels")
        return replay(self.program.graph, durations_ns, self.host.likely if host_time is None else host_time)

    def __repr__(self) -> str:
        interval = format_interval(self.low_us, self.high_us, self.step.step_time_us)
        return f"Prediction({self.summary}, 90 % interval {interval})"


@dataclass(frozen=True, slots=True)
class RefusedTarget:
    """A target on which the step can't be predicted.

    Attributes:
        label: Name of the cluster, or of the GPU.
        error: Why not, and what to try.
    """

    label: str
    error: TracekitError

    def to_message(self) -> Message:
        """Return the warning that names the target and the reason."""
        return TARGET_NOT_PREDICTED(target=self.label, reason=self.error.catalogue_message)

    def __str__(self) -> str:
        """Return the reason in one or two sentences."""
        return str(self.to_message())


def _squeeze(label: str) -> str:
    """Return a label in lower case, without spaces: ``4xh100-sxm + 4xa100@eth100`` may have them."""
    return "".join(label.split()).lower()


def compute_cost(price: float | None, gpus: int, step_time_us: float) -> float | None:
    """Compute the dollars for 1,000 steps; None without a price.

    Args:
        price: Dollars for an hour of one GPU.
        gpus: Number of GPUs rented.
        step_time_us: Duration of a step.
    """
    return None if price is None else price * gpus * step_time_us * 1e3 / 3.6e9


def compute_cost_per_million(price: float | None, gpus: int, per_second: float | None) -> float | None:
    """Compute the dollars for a million samples or tokens; None without a price or a rate.

    Args:
        price: Dollars for an hour of one GPU.
        gpus: Number of GPUs rented.
        per_second: Samples or tokens per second of all GPUs.
    """
    return None if per_second is None else compute_cost(price, gpus, 1e9 / per_second)


def compute_joules_per_unit(
    energy: StepEnergy | None, step: StepTime, gpus: int, batch: StepBatch | None
) -> float | None:
    """Compute the joules for a sample or token, of the mean step; None without an energy or a batch.

    Args:
        energy: Energy of the median step on one GPU.
        step: The step.
        gpus: Number of GPUs in use.
        batch: What all of them process in a step.
    """
    joules = scale_to_mean_step(energy, step).joules if energy else None
    return joules * gpus / batch.size if joules is not None and batch and batch.size else None


def scale_to_mean_step(energy: StepEnergy, step: StepTime) -> StepEnergy:
    """Return the energy of the mean step, which draws as much power as the median one."""
    return energy.lengthen(step.mean_us / step.step_time_us) if step.step_time_us else energy


@dataclass(frozen=True, slots=True)
class Predictions(Mapping[str, Prediction]):
    """The traced step on several GPUs or clusters, by name in any spelling, in the requested order.

    Attributes:
        run: The measured run.
        targets: The predictions, with the what-if edits.
        what_if: The what-if edits; None without any.
        step_times_after_edits: For each edit, the target's step times with it and all edits before it; None where they
            can't be predicted.
        prices: Dollars for an hour of one GPU.
        cluster: Where the trace was recorded; None where that is unknown.
        question: What is to be decided.
        batch: What the job processes in a measured step; None where unknown.
        refused: Targets on which the step can't be predicted, such as clusters too small for the layout.
        other_batches: The predictions of a serving engine's batches of other kinds than the measured steps, by kind.
    """

    run: MeasuredRun
    targets: tuple[Prediction, ...]
    what_if: WhatIfResult | None = None
    step_times_after_edits: tuple[tuple[float | None, ...], ...] = ()
    prices: Prices = UNPRICED
    cluster: Cluster | None = None
    question: Question = DEFAULT_QUESTION
    batch: StepBatch | None = None
    refused: tuple[RefusedTarget, ...] = ()
    other_batches: Mapping[str, tuple[Prediction, ...]] = field(default_factory=dict)

    @property
    def price(self) -> float | None:
        """Dollars for an hour of the trace's GPU; None if it wasn't given."""
        return self.prices.find(self.run.gpu, self.cluster)

    def __getitem__(self, name: str) -> Prediction:
        """Return the prediction for one cluster or GPU."""
        wanted = _squeeze(name)
        for other in self.refused:
            if _squeeze(other.label) == wanted:
                raise KeyError(str(other))
        for target in self.targets:
            if _squeeze(target.label) == wanted:
                return target
        try:
            slug = resolve_gpu(name).gpu.slug
        except PredictorError:
            raise KeyError(name) from None
        for target in self.targets:
            if target.gpu == slug:
                return target
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the clusters and GPUs."""
        return (target.label for target in self.targets)

    def __repr__(self) -> str:
        return f"Predictions({', '.join(one.summary for one in self.targets)})"

    def __len__(self) -> int:
        """Return the number of targets."""
        return len(self.targets)
