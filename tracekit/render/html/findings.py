"""Rows of the page's findings, each with an address and the kernels that it is about."""

from collections import Counter
from dataclasses import dataclass

from tracekit.format import format_shape
from tracekit.render.findings import group_findings
from tracekit.reporting.findings.finding import Finding
from tracekit.reporting.model import Report


@dataclass(frozen=True, slots=True)
class FindingRow:
    """Findings that give several targets the same advice, or one alone.

    Attributes:
        id: Stable identifier within the page.
        findings: The findings.
        kernels: Places in the report's kernels of those that the evidence names.
    """

    id: str
    findings: list[Finding]
    kernels: list[int]


def build_finding_rows(report: Report) -> list[FindingRow]:
    """Build the rows in the order of the findings."""
    named = [
        (" ".join(part for part in (kernel.op or kernel.name, kernel.dtype, format_shape(kernel.shape)) if part))
        for kernel in report.kernels
    ]
    seen: Counter[str] = Counter()
    rows = []
    for group in group_findings(report.findings):
        code = group[0].code
        seen[code] += 1
        evidence = {row.what for finding in group for row in finding.evidence}
        kernels = [i for i, name in enumerate(named) if name in evidence]
        rows.append(FindingRow(f"finding-{code}" + (f"-{seen[code]}" if seen[code] > 1 else ""), group, kernels))
    return rows
