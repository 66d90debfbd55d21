"""Define what is reported of a job of many ranks."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tracekit.comm import Cluster
from tracekit.format import format_duration
from tracekit.messages import Message
from tracekit.prediction.model import Coverage
from tracekit.replay.step_time import StepTime


@dataclass(frozen=True, slots=True)
class FleetTarget:
    """The job's step on one target.

    Attributes:
        gpu: Canonical name of the GPU.
        cluster: Name of the cluster; None if only the GPU was named.
        step: The median step.
        low_us: Lower end of the step time's 90 % interval.
        high_us: Upper end.
        speedup: Measured step time over predicted.
        coverage: How the GPU time was predicted.
    """

    gpu: str
    cluster: str | None
    step: StepTime
    low_us: float
    high_us: float
    speedup: float
    coverage: Coverage

    @property
    def label(self) -> str:
        """Name of the cluster, or of the GPU."""
        return self.cluster or self.gpu


@dataclass(frozen=True, slots=True)
class FleetReport:
    """A job of many ranks: its measured step, who holds it up, and its step on targets.

    Attributes:
        trace: Name of the first trace.
        gpu: Canonical name of the traces' GPU; None if unknown.
        source_cluster: The cluster of the traces; None if unknown.
        ranks: Number of ranks that were read.
        world_size: Ranks of the job.
        kernels: Kernels of all ranks.
        step: The measured step, all ranks together.
        replayed_us: The same, replayed with the measured kernel times.
        stragglers: A row per rank, as :func:`tracekit.analysis.stragglers.find_stragglers` returns it.
        links: A row per process group of one size: how fast its collectives were (:mod:`tracekit.fleet.links`).
        steps: A row per step: quantiles over the ranks of what each takes without waiting for others.
        targets: The predictions.
        warnings: What is wrong with the traces or left out.
    """

    trace: str
    gpu: str | None
    source_cluster: Cluster | None
    ranks: int
    world_size: int
    kernels: int
    step: StepTime
    replayed_us: float
    stragglers: pl.DataFrame
    links: pl.DataFrame
    steps: pl.DataFrame
    targets: tuple[FleetTarget, ...]
    warnings: tuple[Message, ...]

    @property
    def error_pct(self) -> float:
        """Error of the replay, in percent."""
        return 100 * (self.replayed_us / self.step.step_time_us - 1)

    def __getitem__(self, name: str) -> FleetTarget:
        """Return the prediction for a cluster or a GPU, by its canonical name."""
        found: Mapping[str, FleetTarget] = {one.label: one for one in self.targets}
        return found[name]

    def __repr__(self) -> str:
        return f"FleetReport({self.ranks} ranks, {format_duration(self.step.step_time_us)})"
