"""The measured run: what was read, and the median step."""

from dataclasses import dataclass

from tracekit.prediction.batch import Batch, batch_of_job
from tracekit.prediction.layout import Change, layout_of
from tracekit.prediction.model import cost, cost_of_million
from tracekit.replay.run import Run
from tracekit.units import printable, with_others
from tracekit.workload.steps import is_whole_trace

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
        rank: The rank that was measured; ``None`` for several, or outside a distributed job.
        ranks: Ranks of the job.
        measured: How many of them were measured together.
        steps: Steps that the medians are over.
        steps_marked: Whether the trace marks its steps; if not, all of it counts as one.
        batches: What the steps are where a serving engine marked them, such as ``decode``; ``None`` for other steps.
        step_time_us: Median step.
        kernel_time_us: Time in it in which the GPU ran something; of several ranks in the mean.
        exposed_comm_us: Part of it in which only collectives ran.
        waiting_us: Part of that in which they only waited for other ranks.
        idle_us: The rest of the step.
        kernels: GPU activities in the trace.
        shapes_recorded: Whether the profiler recorded shapes.
        dollars_per_1000_steps: On all ranks' GPUs; None where their price wasn't given.
        batch: What the job works through in a step; None where the trace doesn't tell.
        per_second: Of that, what it gets done.
        dollars_per_million: Of that, on all ranks' GPUs.
    """

    trace: str
    gpu: str | None
    resolution: str
    rank: int | None
    ranks: int
    measured: int
    steps: int
    steps_marked: bool
    batches: str | None
    step_time_us: float
    kernel_time_us: float
    exposed_comm_us: float
    waiting_us: float
    idle_us: float
    kernels: int
    shapes_recorded: bool
    dollars_per_1000_steps: float | None = None
    batch: Batch | None = None
    per_second: float | None = None
    dollars_per_million: float | None = None


def build(run: Run, price: float | None = None, batch: Batch | None = None) -> Source:
    """The measured run.

    Args:
        run: The run.
        price: Dollars for an hour of its GPU; None if it isn't known.
        batch: What its job works through in a step; None for what the trace tells.
    """
    ranks = max(run.trace.world_size, len(run.ranks))
    batch = batch or batch_of_job(run, layout_of(run, Change()))
    per_second = batch.per_second(run.measured.step_time_us) if batch else None
    return Source(
        trace=with_others(printable(run.trace.source), len(run.ranks) - 1),
        gpu=run.gpu.slug if run.gpu else None,
        resolution=_resolution(run),
        rank=run.trace.rank if len(run.ranks) == 1 else None,
        ranks=ranks,
        measured=len(run.ranks),
        steps=run.measured.steps,
        steps_marked=not is_whole_trace(run.steps),
        batches=" and ".join(run.chosen["kind"].drop_nulls().unique().sort()) or None,
        step_time_us=run.measured.step_time_us,
        kernel_time_us=run.measured.kernel_time_us,
        exposed_comm_us=run.measured.exposed_comm_us,
        waiting_us=run.measured.waiting_us,
        idle_us=run.measured.idle_us,
        kernels=run.kernels.height,
        shapes_recorded=run.trace.shapes_recorded,
        dollars_per_1000_steps=cost(price, ranks, run.measured.step_time_us),
        batch=batch,
        per_second=per_second,
        dollars_per_million=cost_of_million(price, ranks, per_second),
    )


def _resolution(run: Run) -> str:
    if run.source is None:
        recorded = run.trace.device.name if run.trace.device else ""
        told = f"{printable(recorded)!r}, not recognised" if recorded.strip() else "not recorded"
        return f"{told} (--source-gpu names it)"
    return f"{run.source.query or 'unnamed GPU'!r} → {run.source.gpu.slug} (by its {TOLD_BY[run.source.how]})"
