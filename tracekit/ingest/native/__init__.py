"""The decoder's inner loops as machine code: compiled once per installation, linked in milliseconds from then on.

numba compiles them, but importing it, and having it read its own cache, takes longer than decoding 50 MB of JSON. So
their object code is kept (:mod:`kept`), and numba is asked only where there is none.
"""

from collections.abc import Callable
from threading import Lock

from tracekit.ingest.compiling import COMPILING
from tracekit.ingest.native import kept
from tracekit.ingest.native.linking import Loops, link

_lock = Lock()
_linked: list[Loops] = []


def loops(progress: Callable[[str], None] = lambda stage: None) -> Loops:
    """The loops, ready to be called.

    Args:
        progress: Called if they have to be compiled first.
    """
    with _lock:
        if not _linked:
            _linked.append(_from_file() or _compiled(progress))
        return _linked[0]


def _from_file() -> Loops | None:
    code = kept.find()
    try:
        return link(code) if code else None
    except RuntimeError:
        return None


def _compiled(progress: Callable[[str], None]) -> Loops:
    progress(COMPILING)
    from tracekit.ingest.native.compile import object_code

    code = object_code()
    kept.store(code)
    return link(code)
