"""Find loops in the library that wheels bring along, which hatch_build.py compiles."""

import sys
from ctypes import CDLL
from functools import cache
from pathlib import Path

from tracekit.compiled.units import Functions, Unit, bind_functions

LIBRARY_NAME = "loops" + {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


def find_prebuilt(unit: Unit) -> Functions | None:
    """Return the functions of a unit; ``None`` where there is no library, or one of other sources."""
    library = _open_library()
    try:
        return None if library is None else bind_functions(unit, library, lambda symbol: (symbol, library))
    except AttributeError:
        return None


@cache
def _open_library() -> CDLL | None:
    try:
        return CDLL(str(Path(__file__).with_name(LIBRARY_NAME)))
    except OSError:
        return None
