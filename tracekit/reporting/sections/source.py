"""The measured run: what was read, and the median step."""

from dataclasses import dataclass

from tracekit.replay.run import Run

TOLD_BY = {
    "slug": "name",
    "alias": "name",
    "default": "name",
    "file": "file",
    "properties": "SMs and memory",
}


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


def build(run: Run) -> Source:
    """The measured run."""
    return Source(
        trace=run.trace.source,
        gpu=run.gpu.slug if run.gpu else None,
        resolution=_resolution(run),
        rank=run.trace.rank,
        ranks=run.trace.world_size,
        steps=run.measured.steps,
        step_time_us=run.measured.step_time_us,
        kernel_time_us=run.measured.kernel_time_us,
        exposed_comm_us=run.measured.exposed_comm_us,
        idle_us=run.measured.idle_us,
        kernels=run.kernels.height,
        shapes_recorded=run.trace.shapes_recorded,
    )


def _resolution(run: Run) -> str:
    if run.source is None:
        return "not recorded"
    return f"{run.source.query or 'unnamed GPU'!r} → {run.source.gpu.slug} (by its {TOLD_BY[run.source.how]})"
