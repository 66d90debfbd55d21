"""The CPU limits the step: it would hardly be shorter with infinitely fast kernels."""

from collections.abc import Iterator

from tracekit.replay.causes import Cause
from tracekit.replay.whatif import Select, cuda_graph
from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.units import duration, percent

LIMITING = 0.5
KEPT = 0.05
"""Part of the step that neither GPU nor CPU account for, from which on the reader should know."""


def find(case: Case) -> Iterator[Finding]:
    """Fires if half of the step is the CPU's when kernels take no time, and CUDA graphs in place of its launches save.

    What is left with a CPU that takes no time either isn't the CPU's: waits and gaps that are kept as measured.
    """
    run = case.run
    part, kept = (run.step_with(run.kernel_us * 0, host).step_time_us / case.step_time_us for host in (1.0, 0.0))
    if part - kept < LIMITING:
        return
    saves_us = case.saved_by(lambda run: cuda_graph(run, Select({})))
    if not case.worth(saves_us):
        return
    floor = f"{duration(part * case.step_time_us)}, {percent(100 * part)} of the step"
    rest = f"; {duration(kept * case.step_time_us)} of it would stay with any CPU" if kept >= KEPT else ""
    yield Finding(
        kind="launch-bound",
        title=f"The CPU sets a floor of {floor}, whatever the GPU{rest}.",
        advice="CUDA graphs (what this saving stands for), torch.compile, larger batches, fewer synchronisations.",
        saves_us=saves_us,
        evidence=case.late_launches("the GPU waits for its launch", Cause.LAUNCH_BOUND, Cause.LAUNCH_LATENCY),
    )
