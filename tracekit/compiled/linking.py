"""Link object code to callable functions, by llvmlite."""

from collections.abc import Mapping
from ctypes import CFUNCTYPE, c_int64
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.ctypeslib import ndpointer

INTEGER = c_int64
BYTE_ARRAY, INT8_ARRAY, INT_ARRAY, FLOAT_ARRAY = (
    ndpointer(kind, flags="C_CONTIGUOUS") for kind in (np.uint8, np.int8, np.int64, np.float64)
)

_library_numbers = count()

Parameters = Mapping[str, tuple[Any, ...]]
"""Kinds of the parameters of each function; all return an integer."""


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


def create_machine() -> Any:
    """Create LLVM's target machine for this computer."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    name, features = processor()
    return target.create_target_machine(name, features, opt=3, reloc="pic", codemodel="default", jit=True)


@cache
def processor() -> tuple[str, str]:
    """Return the processor's name and features."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def _create_linker() -> Any:
    return llvm.create_lljit_compiler(create_machine(), use_jit_link=True)


def link_functions(code: bytes, parameters: Parameters) -> Functions:
    """Link the functions of an object file.

    Raises:
        RuntimeError: It is not one, or a function is missing or needs a missing symbol.
    """
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in parameters:
        builder.export_symbol(name)
    library = builder.link(_create_linker(), f"tracekit-{next(_library_numbers)}")
    functions = {name: CFUNCTYPE(c_int64, *kinds)(library[name]) for name, kinds in parameters.items()}
    return Functions(functions, library)
