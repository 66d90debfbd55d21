"""The scanner: the inner loops of decoding large traces, as machine code."""

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from tracekit.compiled import load_unit
from tracekit.compiled.units import Functions, Unit
from tracekit.ingest.native.constants import ENTRY_POINTS

_SOURCES = sorted((*Path(__file__).parent.glob("*.py"), Path(__file__).parents[1] / "fields.py"))

_lock = Lock()
_linked: list[Functions] = []


def get_loops() -> Functions:
    """Return the functions of :mod:`entries`, compiled."""
    with _lock:
        if not _linked:
            _linked.append(load_unit(describe_unit()))
        return _linked[0]


def describe_unit() -> Unit:
    """Describe what is to be compiled."""
    sources = tuple(file.read_text(encoding="utf-8") for file in _SOURCES)
    return Unit("scanner", sources, ENTRY_POINTS, _import_entries)


def _import_entries() -> dict[str, Callable[..., int]]:
    from tracekit.ingest.native import entries

    return {name: getattr(entries, name) for name in ENTRY_POINTS}
