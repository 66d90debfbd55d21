"""What a prediction holds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from predictors import PredictorError, Resolution, resolve_gpu
from tracekit.comm import Cluster
from tracekit.errors import TracekitError
from tracekit.prediction.batch import Batch
from tracekit.prediction.layout import Layout
from tracekit.prediction.memory import Memory
from tracekit.prediction.pipeline import Pipeline
from tracekit.replay.measure import StepTime
from tracekit.replay.run import Run
from tracekit.replay.whatif import WhatIf
from tracekit.units import duration, interval


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
class Shared:
    """The step if kernels that overlap slow each other down, as :mod:`tracekit.replay.contention` has it.

    Attributes:
        overlap: Percent of the kernels' measured time in which another kernel or a collective ran on the same GPU.
        apart_us: The step if each keeps its time.
        step_time_us: The step if they share the GPU.
    """

    overlap: float
    apart_us: float
    step_time_us: float


@dataclass(frozen=True, slots=True)
class Target:
    """Where the step is to run.

    Attributes:
        gpu: The GPU, and how its name was understood.
        cluster: What joins the GPUs; None if only the GPU was named.
        layout: How the job is laid out there; None as in the trace.
        stands_for_gpu: Whether the GPU was asked for by itself as well.
    """

    gpu: Resolution
    cluster: Cluster | None = None
    layout: Layout | None = None
    stands_for_gpu: bool = False

    @property
    def label(self) -> str:
        """The cluster's name, or the GPU's."""
        slug: str = self.cluster.slug if self.cluster else self.gpu.gpu.slug
        return slug


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
        run: The run that was replayed, with what its trace doesn't hold put in: its kernels are the trace's, then
            those.
        replayed: As ``kernels``, of all of them.
        notes: What to know about this prediction.
        memory: What a rank needs of its GPU's memory, and whether it fits.
        ranks: GPUs in use.
        cluster: What joins the GPUs; None if only the GPU was named.
        layout: How the job is laid out there; None where the trace's can't be told.
        price: Dollars for an hour of one GPU; None if it wasn't given.
        shared: The step with contention; None where less than 5 % of the kernels' time overlaps, and for the GPU of the
            trace.
        pipeline: How the step runs through stages that the trace doesn't have; None without.
        samples: What the job works through in a step, over what it does in the trace.
        batch: What the job works through in a step; None where the trace doesn't tell.
        added_us: Time of kernels that the trace doesn't have, by family, over the chosen steps.
    """

    target: Resolution
    step: StepTime
    low_us: float
    high_us: float
    speedup: float
    coverage: Coverage
    kernels: pl.DataFrame
    run: Run
    replayed: pl.DataFrame
    notes: tuple[str, ...]
    memory: Memory
    ranks: int = 1
    cluster: Cluster | None = None
    layout: Layout | None = None
    price: float | None = None
    shared: Shared | None = None
    pipeline: Pipeline | None = None
    samples: float = 1.0
    batch: Batch | None = None
    added_us: Mapping[str, float] = field(default_factory=dict)

    @property
    def gpu(self) -> str:
        """Canonical name of the GPU."""
        slug: str = self.target.gpu.slug
        return slug

    @property
    def label(self) -> str:
        """The cluster's name, or the GPU's."""
        return self.cluster.slug if self.cluster else self.gpu

    @property
    def brief(self) -> str:
        """Its name, step and speedup."""
        return f"{self.label} {duration(self.step.step_time_us)} ({self.speedup:.2f}x)"

    def __repr__(self) -> str:
        return f"Prediction({self.brief}, 90 % interval {interval(self.low_us, self.high_us)})"

    @property
    def speedup_per_sample(self) -> float:
        """What the job gets done in a time, over what it does in the trace."""
        return self.speedup * self.samples

    @property
    def dollars(self) -> float | None:
        """What 1,000 steps cost on all GPUs in use; None without a price."""
        return cost(self.price, self.ranks, self.step.step_time_us)

    @property
    def dollars_as_traced(self) -> float | None:
        """What as many samples as 1,000 traced steps have cost, on all GPUs in use; None without a price."""
        return None if self.dollars is None else self.dollars / self.samples

    @property
    def per_second(self) -> float | None:
        """Samples or tokens that the job gets done; None where the trace doesn't tell its batch."""
        return self.batch.per_second(self.step.step_time_us) if self.batch else None

    @property
    def dollars_per_million(self) -> float | None:
        """What a million samples or tokens cost on all GPUs in use; None without a price or a batch."""
        return cost_of_million(self.price, self.ranks, self.per_second)


@dataclass(frozen=True, slots=True)
class Refused:
    """A target on which the step can't be predicted.

    Attributes:
        label: The cluster's name, or the GPU's.
        error: Why not, and what to try.
    """

    label: str
    error: TracekitError

    def __str__(self) -> str:
        """One sentence or two."""
        return f"not predicted on {self.label}: {self.error}"


def cost(price: float | None, gpus: int, step_time_us: float) -> float | None:
    """Dollars for 1,000 steps; None without a price.

    Args:
        price: Dollars for an hour of one GPU.
        gpus: GPUs in use.
        step_time_us: A step.
    """
    return None if price is None else price * gpus * step_time_us * 1e3 / 3.6e9


def cost_of_million(price: float | None, gpus: int, per_second: float | None) -> float | None:
    """Dollars for a million samples or tokens; None without a price or a rate.

    Args:
        price: Dollars for an hour of one GPU.
        gpus: GPUs in use.
        per_second: What they get done.
    """
    return None if per_second is None else cost(price, gpus, 1e9 / per_second)


@dataclass(frozen=True, slots=True)
class Predictions(Mapping[str, Prediction]):
    """The traced step on several GPUs or clusters, by name in any spelling, in the order asked for.

    Attributes:
        run: The measured run.
        targets: What is predicted, with the what-if edits in it.
        what_if: These edits; None without any.
        after_edits: For each of them the steps on the targets with it and those before; None where they can't be
            predicted.
        price: Dollars for an hour of the trace's GPU; None if it wasn't given.
        batch: What the job works through in a measured step; None where nothing tells.
        refused: Targets on which it can't be predicted, such as clusters too small for the layout.
    """

    run: Run
    targets: tuple[Prediction, ...]
    what_if: WhatIf | None = None
    after_edits: tuple[tuple[float | None, ...], ...] = ()
    price: float | None = None
    batch: Batch | None = None
    refused: tuple[Refused, ...] = ()

    def __getitem__(self, name: str) -> Prediction:
        """The prediction for one cluster or GPU."""
        wanted = name.strip().lower()
        for other in self.refused:
            if other.label.lower() == wanted:
                raise KeyError(str(other))
        for target in self.targets:
            if target.label.lower() == wanted:
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
        """Names of the clusters and GPUs."""
        return (target.label for target in self.targets)

    def __repr__(self) -> str:
        return f"Predictions({', '.join(one.brief for one in self.targets)})"

    def __len__(self) -> int:
        """How many targets."""
        return len(self.targets)
