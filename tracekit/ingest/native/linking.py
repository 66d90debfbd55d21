"""Link object code to callable functions, by llvmlite."""

from ctypes import CFUNCTYPE, c_int64
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.ctypeslib import ndpointer

BYTE_ARRAY, INT8_ARRAY, INT_ARRAY = (ndpointer(kind, flags="C_CONTIGUOUS") for kind in (np.uint8, np.int8, np.int64))

ENTRIES: dict[str, tuple[Any, ...]] = {
    "skip_value": (BYTE_ARRAY, c_int64, c_int64),
    "scan": (
        *(BYTE_ARRAY, INT_ARRAY),
        *(INT_ARRAY, c_int64, INT_ARRAY, BYTE_ARRAY, INT_ARRAY),
        *(INT_ARRAY, c_int64, INT_ARRAY, BYTE_ARRAY, c_int64, INT_ARRAY),
        *(INT8_ARRAY, INT_ARRAY, INT_ARRAY, INT_ARRAY),
    ),
    "transposed": (INT_ARRAY, c_int64, INT_ARRAY, c_int64, INT_ARRAY, c_int64, INT_ARRAY),
    "fill_slots": (INT_ARRAY, c_int64, INT_ARRAY, BYTE_ARRAY, c_int64, c_int64),
}
"""Parameters of the functions; an array is an address, followed by its length where unknown. All return int64."""


@dataclass(frozen=True, slots=True)
class CompiledLoops:
    """The functions, as described by :mod:`entries`; they release the GIL.

    Attributes:
        owners: The objects that own the machine code.
    """

    skip_value: Any
    scan: Any
    transposed: Any
    fill_slots: Any
    owners: tuple[Any, ...]


def create_machine() -> Any:
    """Create LLVM's target machine for this computer."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    name, features = processor()
    return target.create_target_machine(name, features, opt=3, reloc="pic", codemodel="default", jit=True)


def processor() -> tuple[str, str]:
    """Return the processor's name and features."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def link_loops(code: bytes) -> CompiledLoops:
    """Link the functions of an object file.

    Raises:
        RuntimeError: It is not one, or a function is missing or needs a missing symbol.
    """
    jit = llvm.create_lljit_compiler(create_machine(), use_jit_link=True)
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in ENTRIES:
        builder.export_symbol(name)
    library = builder.link(jit, "tracekit")
    functions = {name: CFUNCTYPE(c_int64, *kinds)(library[name]) for name, kinds in ENTRIES.items()}
    return CompiledLoops(**functions, owners=(library, jit))
