"""Make the library of loops that wheels bring along: compiled here, linked by the system's linker."""

import sys
from collections.abc import Iterable
from pathlib import Path

from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

from tracekit.compiled.compile import compile_unit
from tracekit.compiled.just_in_time import create_machine
from tracekit.compiled.units import LIBRARY_NAME, Unit

_IS_WINDOWS = sys.platform == "win32"
_LIBRARIES = ["msvcrt", "vcruntime", "ucrt", "kernel32"] if _IS_WINDOWS else []
"""What a library's start, and memset, need; elsewhere memset is the process's own."""


def build_library(units: Iterable[Unit], folder: Path) -> Path:
    """Compile units and link them; return the library's path.

    Raises:
        OSError: There is no linker, or it refuses the object code.
    """
    machine, objects, symbols = create_machine(), [], list[str]()
    for number, unit in enumerate(units):
        path = folder / f"{number}.o"
        path.write_bytes(compile_unit(unit, machine))
        objects.append(str(path))
        symbols += unit.symbols.values()
    options = [] if _IS_WINDOWS else ["-nostdlib"]
    extension = Extension(
        "loops",
        [],
        extra_objects=objects,
        export_symbols=symbols,
        libraries=_LIBRARIES,
        extra_link_args=options,
    )
    linker = _Linker(
        Distribution({"name": "loops", "ext_modules": [extension]}), build_lib=str(folder), build_temp=str(folder)
    )
    try:
        linker.ensure_finalized()
        linker.run()
    except (BaseError, CCompilerError) as error:
        raise OSError(f"the loops can't be linked: {error}") from error
    return Path(linker.get_ext_fullpath("loops")).replace(folder / LIBRARY_NAME)


class _Linker(build_ext):
    """Links object files alone, to a library that isn't a module of Python."""

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return list(ext.export_symbols)
