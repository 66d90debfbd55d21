"""Compile loops where they run: once per installation, then their stored object code is linked in a millisecond.

Importing numba and reading its own cache takes longer than predicting a step. So object code is stored
(:mod:`object_cache`), llvmlite links it, and numba is imported only if there is none.
"""

from functools import cache
from itertools import count
from typing import Any

import llvmlite.binding as llvm

from tracekit.compiled import object_cache
from tracekit.compiled.announcing import note_compilation
from tracekit.compiled.machine import create_machine
from tracekit.compiled.units import Functions, Unit, bind_functions

_library_numbers = count()


def load_or_compile(unit: Unit) -> Functions:
    """Link the stored object code of a unit, or else compile and store it."""
    file_name = object_cache.compute_file_name(unit)
    stored = object_cache.find_code(file_name)
    try:
        if stored is not None:
            return link_functions(stored, unit)
    except RuntimeError:
        pass
    note_compilation()
    from tracekit.compiled.compile import compile_unit

    code = compile_unit(unit)
    object_cache.store_code(file_name, code)
    return link_functions(code, unit)


@cache
def _create_linker() -> Any:
    return llvm.create_lljit_compiler(create_machine(), use_jit_link=True)


def link_functions(code: bytes, unit: Unit) -> Functions:
    """Link the functions of an object file.

    Raises:
        RuntimeError: It is not one, or a function is missing or needs a missing symbol.
    """
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for symbol in unit.symbols.values():
        builder.export_symbol(symbol)
    library = builder.link(_create_linker(), f"tracekit-{next(_library_numbers)}")
    return bind_functions(unit, library, lambda symbol: library[symbol])
