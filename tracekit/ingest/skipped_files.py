"""Warnings about files that a directory, glob or archive held besides the traces that were read."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from tracekit.errors import DamagedTraceError, NoGpuActivityError, NotATraceError, TraceError
from tracekit.ingest.source import TraceSource
from tracekit.messages import Message, Template
from tracekit.messages import traces as messages

SKIPPABLE_ERRORS = (DamagedTraceError, NotATraceError, NoGpuActivityError)
"""Errors of a file that do not affect the other files."""

MAX_NAMED_FILES = 3
"""Number of files named in a warning; of further ones only the count is given."""

_WARNINGS = {
    DamagedTraceError: messages.FILES_DAMAGED,
    NoGpuActivityError: messages.FILES_WITHOUT_GPU,
    NotATraceError: messages.FILES_OF_OTHER_KIND,
}


def build_skip_warnings(
    failed: Sequence[tuple[TraceSource, TraceError]], others: Sequence[TraceSource]
) -> Iterator[Message]:
    """Build one warning for each reason to skip files.

    Args:
        failed: Unreadable files, and their errors.
        others: Files whose names show that they are not traces.
    """
    by_reason: dict[Template, list[TraceSource]] = defaultdict(list)
    for source, error in failed:
        by_reason[_WARNINGS[next(kind for kind in SKIPPABLE_ERRORS if isinstance(error, kind))]].append(source)
    by_reason[messages.FILES_NOT_TRACES].extend(others)
    for template, sources in by_reason.items():
        if sources:
            yield template(files=len(sources), names=_format_names(sources))


def choose_error(failed: Sequence[tuple[TraceSource, TraceError]]) -> TraceError:
    """Choose the error to raise if no file could be read: that of a trace before that of another file."""
    errors = [error for _, error in failed]
    said = next((error for error in errors if not isinstance(error, NotATraceError)), errors[0])
    others = len(errors) - 1
    if not others:
        return said
    return type(said)(messages.FILES_BESIDE_UNREADABLE(error=said.catalogue_message, others=others))


def _format_names(sources: Sequence[TraceSource]) -> str:
    names = ", ".join(PurePath(source.name).name for source in sources[:MAX_NAMED_FILES])
    more = len(sources) - MAX_NAMED_FILES
    return f"{names} and {more:,} more" if more > 0 else names
