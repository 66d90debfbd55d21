"""What a directory, a glob or an archive held besides the traces that were read, by name."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from tracekit.errors import DamagedTraceError, NoGpuActivityError, NotATraceError, TraceError
from tracekit.ingest.source import Source
from tracekit.units import many

UNREADABLE = (DamagedTraceError, NotATraceError, NoGpuActivityError)
"""What is wrong with a file without being wrong with the others."""

NAMED = 3
"""Files that are named; of more their number is said."""

_WHY = {
    DamagedTraceError: "damaged beyond reading",
    NoGpuActivityError: "without GPU activity",
    NotATraceError: "not one rank's PyTorch profiler trace",
}
_BY_NAME = "no trace by its name (.json, .json.gz, .json.zst, .zip)"


def warnings(failed: Sequence[tuple[Source, TraceError]], others: Sequence[Source]) -> Iterator[str]:
    """One sentence for each reason to leave files out.

    Args:
        failed: Files that couldn't be read, and why.
        others: Files whose names say that they are no traces.
    """
    by_reason: dict[str, list[Source]] = defaultdict(list)
    for source, error in failed:
        by_reason[_WHY[next(kind for kind in UNREADABLE if isinstance(error, kind))]].append(source)
    by_reason[_BY_NAME].extend(others)
    for why, sources in by_reason.items():
        if sources:
            yield f"{many(len(sources), 'file')} left out, {why}: {_named(sources)}"


def worst(failed: Sequence[tuple[Source, TraceError]]) -> TraceError:
    """What to say where nothing could be read: of a trace rather than of a file that is none."""
    errors = [error for _, error in failed]
    said = next((error for error in errors if not isinstance(error, NotATraceError)), errors[0])
    others = len(errors) - 1
    if not others:
        return said
    return type(said)(said.message, f"{said.hint} Nor can {many(others, 'other file')} beside it be read.".lstrip())


def _named(sources: Sequence[Source]) -> str:
    names = ", ".join(PurePath(source.name).name for source in sources[:NAMED])
    more = len(sources) - NAMED
    return f"{names} and {more:,} more" if more > 0 else names
