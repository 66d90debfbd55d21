"""What the page calls what messages name as an option: who uses it has no command line."""

import re
from dataclasses import replace

from tracekit.reporting.model import Report
from tracekit.web.layout import NUMBERS

FIELDS = {
    "gpus": "GPUs",
    "clusters": "Clusters",
    "source_gpu": "GPU of the trace",
    "source_cluster": "Cluster of the trace",
    "steps": "Steps",
    "prices": "Dollars for an hour of a GPU",
    "fsdp": "Shard parameters (FSDP)",
    **NUMBERS,
}
"""What the page calls each field of a request."""

SINGULAR = {"gpus": "gpu", "clusters": "cluster", "prices": "price"}
"""Options of the command line that are given once for each entry of a field."""

ONLY_THERE = ("host-speed", "no-calibration", "pp-schedule", "ranks", "samples", "unprofiled-step", "what-if")
"""Options for which the page has no field."""

_SAID = {f"--{SINGULAR.get(name, name).replace('_', '-')}": f"“{label}”" for name, label in FIELDS.items()}
_SAID |= {f"--{option}": f"the command line's --{option}" for option in ONLY_THERE}
_OPTION = re.compile(rf"(?:predict )?({'|'.join(sorted(_SAID, key=len, reverse=True))})(?![\w-])")


def on_page(text: str) -> str:
    """A message with the page's fields in place of options.

    Examples:
        >>> on_page("leave out --tp, or say --ep 4.")
        'leave out “Tensor-parallel ranks”, or say “Expert-parallel ranks” 4.'
    """
    return _OPTION.sub(lambda found: _SAID[found[1]], text)


def worded(report: Report) -> Report:
    """A report for the page, what it advises with the page's fields in place of options."""
    return replace(
        report,
        warnings=tuple(map(on_page, report.warnings)),
        findings=tuple(replace(found, advice=on_page(found.advice)) for found in report.findings),
        targets=tuple(replace(target, notes=tuple(map(on_page, target.notes))) for target in report.targets),
    )
