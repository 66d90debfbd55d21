"""The CPU limits the step: it would hardly be shorter with infinitely fast kernels."""

from collections.abc import Iterator

from tracekit.replay.causes import Cause
from tracekit.replay.whatif import Select, cuda_graph, saving_us
from tracekit.reporting.findings.case import Case, tried
from tracekit.reporting.findings.model import Finding
from tracekit.units import duration, percent

LIMITING = 0.5


def find(case: Case) -> Iterator[Finding]:
    """Fires if half of the step is left when kernels take no time, and CUDA graphs in place of its launches save."""
    run = case.run
    part = run.step_with(case.measured_us * 0).span_us / run.replay.span_us
    if part < LIMITING:
        return
    edited = tried(lambda: cuda_graph(run, Select({})))
    saves_us = saving_us(run, edited.run) if edited else 0.0
    if not case.worth(saves_us):
        return
    floor = f"{duration(part * case.step_time_us)}, {percent(100 * part)} of the step"
    yield Finding(
        kind="launch-bound",
        title=f"The CPU sets a floor of {floor}, whatever the GPU.",
        advice="CUDA graphs (what this saving stands for), torch.compile, larger batches, fewer synchronisations.",
        saves_us=saves_us,
        evidence=case.late_launches("the GPU waits for its launch", Cause.LAUNCH_BOUND, Cause.LAUNCH_LATENCY),
    )
