"""Kernels faster than their bound: our count of their work is wrong, or their data was in the L2 cache."""

from collections.abc import Iterator

from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.reporting.sections.over_bound import BEATEN
from tracekit.workload.shares import share


def find(case: Case) -> Iterator[Finding]:
    """Fires if any kernel beats its roofline bound by more than 2 %."""
    beaten = case.kernels.filter(BEATEN)
    if beaten.is_empty():
        return
    part = share(case.kernels, "time_us", BEATEN)
    families = ", ".join(sorted(beaten["family"].unique().to_list()))
    yield Finding(
        kind="faster-than-bound",
        title=f"{beaten.height:,} kernels ({part:.1f} % of GPU time: {families}) run faster than their bound.",
        advice="They read from the L2 cache, or tracekit overestimates their work; their times are kept as measured.",
        saves_us=None,
        evidence=case.evidence(beaten),
    )
