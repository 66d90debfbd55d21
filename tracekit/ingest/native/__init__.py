"""The scanner: the inner loops of decoding large traces, as machine code."""

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from tracekit.compiled import load_or_compile
from tracekit.compiled.linking import Functions
from tracekit.ingest.native.entry_points import ENTRY_POINTS

_SOURCES = sorted((*Path(__file__).parent.glob("*.py"), Path(__file__).parents[1] / "fields.py"))

_lock = Lock()
_linked: list[Functions] = []


def get_loops() -> Functions:
    """Return the functions of :mod:`entries`, compiled."""
    with _lock:
        if not _linked:
            sources = tuple(file.read_text() for file in _SOURCES)
            _linked.append(load_or_compile("scanner", sources, ENTRY_POINTS, _import_entries))
        return _linked[0]


def _import_entries() -> dict[str, Callable[..., int]]:
    from tracekit.ingest.native import entries

    return {name: getattr(entries, name) for name in ENTRY_POINTS}
