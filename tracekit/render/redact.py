"""Render what was removed from a trace."""

from collections.abc import Iterator

from rich.text import Text

from tracekit.escape import to_line
from tracekit.redact import RedactionSummary
from tracekit.render.screen import Screen


def render_removed(what: RedactionSummary, path: str) -> Screen:
    """Render the removed items with their counts, and the path of the redacted copy."""
    lines = (*(f"removed {line}" for line in _describe_removed(what)), f"Wrote {path}")
    hint = "Names of ops, kernels and annotations are kept otherwise: look through them before you share it."
    return Screen(tables=[Text(to_line(line)) for line in lines], notes=[hint])


def _describe_removed(what: RedactionSummary) -> Iterator[str]:
    if what.metadata:
        yield f"metadata: {', '.join(what.metadata)}"
    if what.events:
        yield f"stack events: {what.events:,}"
    for name, count in what.arguments.most_common():
        yield f"arguments {name!r}: {count:,}"
    for kind, count in what.texts.most_common():
        yield f"texts with {kind}: {count:,}"
