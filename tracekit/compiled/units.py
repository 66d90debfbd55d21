"""What is compiled together, and the functions that come of it."""

import hashlib
import sys
from collections.abc import Callable, Mapping
from ctypes import CDLL, CFUNCTYPE, c_int64
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.ctypeslib import ndpointer

INTEGER = c_int64
BYTE_ARRAY, INT8_ARRAY, INT_ARRAY, FLOAT_ARRAY = (
    ndpointer(kind, flags="C_CONTIGUOUS") for kind in (np.uint8, np.int8, np.int64, np.float64)
)

Parameters = Mapping[str, tuple[Any, ...]]
"""Kinds of the parameters of each function; all return an integer."""


@dataclass(frozen=True)
class Unit:
    """Functions that are compiled to one object file.

    Attributes:
        name: What they are for.
        sources: All that the code depends on, beside the compilers.
        parameters: Kinds of each function's parameters.
        import_functions: Returns the functions; called only to compile them.
    """

    name: str
    sources: tuple[str, ...]
    parameters: Parameters
    import_functions: Callable[[], Mapping[str, Callable[..., int]]]

    @cached_property
    def digest(self) -> str:
        """A digest of the sources."""
        digest = hashlib.blake2b(digest_size=16)
        for part in self.sources:
            digest.update(f"{len(part)} {part}".encode())
        return digest.hexdigest()

    @cached_property
    def symbols(self) -> dict[str, str]:
        """The symbol of each function; another one after any change of the sources, so that old code isn't found."""
        return {function: f"{function.strip('_')}_{self.digest}" for function in self.parameters}


@dataclass(frozen=True)
class Functions:
    """Linked functions by name.

    Attributes:
        by_name: The functions.
        owner: The object that owns the machine code.
    """

    by_name: Mapping[str, Any]
    owner: Any

    def __getitem__(self, name: str) -> Any:
        """Return a function."""
        return self.by_name[name]


def bind_functions(unit: Unit, owner: Any, find: Callable[[str], Any]) -> Functions:
    """Make the functions of a unit callable; calls release the GIL.

    Args:
        unit: The unit.
        owner: The object that owns the machine code.
        find: Returns what ctypes takes for a symbol's place.
    """
    functions = {name: CFUNCTYPE(c_int64, *kinds)(find(unit.symbols[name])) for name, kinds in unit.parameters.items()}
    return Functions(functions, owner)


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
