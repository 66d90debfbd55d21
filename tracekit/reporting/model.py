"""What a report holds. Times are microseconds, shares are percent."""

from dataclasses import dataclass

from tracekit.prediction import Prediction
from tracekit.replay.run import SelfReplay


@dataclass(frozen=True, slots=True)
class Source:
    """The measured run.

    Attributes:
        trace: Where it was read from.
        gpu: Canonical name; ``None`` if it isn't known.
        resolution: How the GPU was told, one sentence.
        rank: Rank in the job; ``None`` outside a distributed one.
        ranks: Ranks of the job.
        steps: Steps that the medians are over.
        step_time_us: Median step.
        kernel_time_us: Time in it in which the GPU ran something.
        exposed_comm_us: Part of it in which only collectives ran.
        idle_us: The rest of the step.
        kernels: GPU activities in the trace.
        shapes_recorded: Whether the profiler recorded shapes.
    """

    trace: str
    gpu: str | None
    resolution: str
    rank: int | None
    ranks: int
    steps: int
    step_time_us: float
    kernel_time_us: float
    exposed_comm_us: float
    idle_us: float
    kernels: int
    shapes_recorded: bool


@dataclass(frozen=True, slots=True)
class WorkCoverage:
    """Shares of GPU time by what is known of the work, in percent.

    Attributes:
        work: Its work is known: dimensions, bytes, or a collective's message.
        inferred: Part of that which was taken from the same kernel elsewhere in the trace, or from the gradients that
            an all-reduce sums.
        family: Only the family is known.
        unknown: Not even that.
    """

    work: float
    inferred: float
    family: float
    unknown: float


@dataclass(frozen=True, slots=True)
class FamilyTime:
    """GPU time of one kernel family in the median step.

    Attributes:
        family: Kernel family.
        time_us: Its kernels' summed time per step.
        share: Of all kernels' summed time.
        kernels: Kernels per step.
    """

    family: str
    time_us: float
    share: float
    kernels: float


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Time in which the measured GPU ran nothing, for one reason.

    Attributes:
        cause: The reason's name.
        meaning: What it means, one clause.
        time_us: In a mean step.
        share: Of all idle time.
        op: The op whose launches ended most of it; ``None`` if it was the end of the step.
    """

    cause: str
    meaning: str
    time_us: float
    share: float
    op: str | None


@dataclass(frozen=True, slots=True)
class TimeBar:
    """Where the step's time goes on one GPU; the parts add up to the step.

    Attributes:
        label: ``measured``, or the target's canonical name.
        step_time_us: The step.
        parts: Family (and last ``idle``) to time, largest first. Kernels that overlap share the time they cover.
    """

    label: str
    step_time_us: float
    parts: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All launches of one kernel on one shape.

    Attributes:
        name: The kernel's name.
        op: The op that launches it.
        family: Its family.
        dtype: Precision asked for.
        shape: The op's input shapes, as recorded.
        count: Launches per step.
        time_us: Summed time per step.
        share: Of all kernels' summed time.
        utilization: Roofline bound over time, percent; ``None`` where the work or the GPU isn't known.
        limiter: What the bound binds on.
        work_known: Whether its work is.
        predicted_us: Summed time per step on each target, in the report's order of targets.
    """

    name: str
    op: str | None
    family: str
    dtype: str | None
    shape: str | None
    count: float
    time_us: float
    share: float
    utilization: float | None
    limiter: str | None
    work_known: bool
    predicted_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that holds the step back, or that a reader must know.

    Attributes:
        title: One sentence with its numbers.
        advice: What to try.
        saves_us: Step time that it would save, by replay; ``None`` where that isn't known.
    """

    title: str
    advice: str
    saves_us: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything there is to say about a run and its predictions."""

    source: Source
    replay: SelfReplay
    coverage: WorkCoverage
    breakdown: tuple[FamilyTime, ...]
    idle: tuple[IdleTime, ...]
    bars: tuple[TimeBar, ...]
    kernels: tuple[KernelTime, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    targets: tuple[Prediction, ...]
