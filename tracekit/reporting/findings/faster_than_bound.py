"""Finding: kernels faster than their bound; their work is overestimated, or their data was in the L2 cache."""

from collections.abc import Iterator

from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding
from tracekit.reporting.sections.over_bound import IS_FASTER_THAN_BOUND
from tracekit.workload.time_share import compute_time_share


def find_faster_than_bound(context: FindingContext) -> Iterator[Finding]:
    """Find kernels that are faster than their roofline bound by more than 2 %."""
    beaten = context.kernels.filter(IS_FASTER_THAN_BOUND)
    if beaten.is_empty():
        return
    part = compute_time_share(context.kernels, "time_us", IS_FASTER_THAN_BOUND)
    families = ", ".join(sorted(beaten["family"].unique().to_list()))
    yield Finding(
        kind="faster-than-bound",
        title=f"{beaten.height:,} kernels ({part:.1f} % of GPU time: {families}) run faster than their bound.",
        advice="They read from the L2 cache, or tracekit overestimates their work; their times are kept as measured.",
        saves_us=None,
        evidence=context.list_evidence(beaten),
    )
