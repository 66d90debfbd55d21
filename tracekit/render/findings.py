"""Group findings for display."""

from collections.abc import Iterable

from tracekit.reporting.findings.finding import Finding


def group_findings(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Group findings that give several targets the same advice; keep the order otherwise."""
    groups: dict[object, list[Finding]] = {}
    for place, finding in enumerate(findings):
        groups.setdefault(finding.code if finding.on else place, []).append(finding)
    return list(groups.values())
