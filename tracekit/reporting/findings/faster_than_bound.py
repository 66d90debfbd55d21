"""Finding: kernels faster than their bound; their work is overestimated, or their data was in the L2 cache."""

from collections.abc import Iterator

from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding
from tracekit.reporting.sections.kernels import IS_FASTER_THAN_BOUND
from tracekit.workload.step_kinds import compute_time_share


def find_faster_than_bound(context: FindingContext) -> Iterator[Finding]:
    """Find kernels that are faster than their roofline bound by more than 2 %."""
    beaten = context.kernels.filter(IS_FASTER_THAN_BOUND)
    if beaten.is_empty():
        return
    part = compute_time_share(context.kernels, "time_us", IS_FASTER_THAN_BOUND)
    families = sorted(beaten["family"].unique())
    yield Finding(
        message=told.FASTER_THAN_BOUND(kernels=beaten.height, time_pct=part, families=families),
        saves_us=None,
        evidence=context.list_evidence(beaten),
    )
