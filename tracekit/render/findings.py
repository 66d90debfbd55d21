"""Findings as they are listed."""

from collections.abc import Iterable

from tracekit.reporting.findings.model import Finding


def grouped(findings: Iterable[Finding]) -> list[list[Finding]]:
    """In their order, but what is advised alike of several targets together."""
    groups: dict[object, list[Finding]] = {}
    for place, finding in enumerate(findings):
        groups.setdefault((finding.kind, finding.advice) if finding.on else place, []).append(finding)
    return list(groups.values())
