"""What was taken out of a trace, as text."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.redact import Removed


def removed(what: Removed, path: str) -> RenderableType:
    """What was removed, counted, and where the copy lies."""
    return Group(
        *(Text(f"removed {line}") for line in _lines(what)),
        Text(f"Wrote {path}"),
        Text("Names of ops, kernels and annotations are kept otherwise: look through them before you share it.", "dim"),
    )


def _lines(what: Removed) -> Iterator[str]:
    if what.metadata:
        yield f"metadata: {', '.join(what.metadata)}"
    if what.events:
        yield f"stack events: {what.events:,}"
    for name, count in what.arguments.most_common():
        yield f"arguments {name!r}: {count:,}"
    for kind, count in what.texts.most_common():
        yield f"texts with {kind}: {count:,}"
