"""The decoder's inner loops as machine code: compiled once per installation, then linked in milliseconds.

numba compiles them. But importing numba and reading its cache takes longer than decoding 50 MB of JSON. So the object
code is stored (:mod:`object_cache`), and numba is used only if there is none.
"""

from collections.abc import Callable
from threading import Lock

from tracekit.ingest.compiling import COMPILING_MESSAGE
from tracekit.ingest.native import object_cache
from tracekit.ingest.native.linking import CompiledLoops, link_loops

_lock = Lock()
_linked: list[CompiledLoops] = []


def get_loops(progress: Callable[[str], None] = lambda stage: None) -> CompiledLoops:
    """Return the callable loops.

    Args:
        progress: Called if they have to be compiled first.
    """
    with _lock:
        if not _linked:
            _linked.append(_load_stored() or _compile_loops(progress))
        return _linked[0]


def _load_stored() -> CompiledLoops | None:
    code = object_cache.find_code()
    try:
        return link_loops(code) if code else None
    except RuntimeError:
        return None


def _compile_loops(progress: Callable[[str], None]) -> CompiledLoops:
    progress(COMPILING_MESSAGE)
    from tracekit.ingest.native.compile import object_code

    code = object_code()
    object_cache.store_code(code)
    return link_loops(code)
