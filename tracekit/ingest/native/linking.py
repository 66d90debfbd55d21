"""Object code to functions, by llvmlite."""

from ctypes import CFUNCTYPE, c_int64
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.ctypeslib import ndpointer

BYTES, INT8S, INTS = (ndpointer(kind, flags="C_CONTIGUOUS") for kind in (np.uint8, np.int8, np.int64))

ENTRIES: dict[str, tuple[Any, ...]] = {
    "skip_value": (BYTES, c_int64, c_int64),
    "scan": (
        *(BYTES, INTS),
        *(INTS, c_int64, INTS, BYTES, INTS),
        *(INTS, c_int64, INTS, BYTES, c_int64, INTS),
        *(INT8S, INTS, INTS, INTS),
    ),
    "transposed": (INTS, c_int64, INTS, c_int64, INTS, c_int64, INTS),
    "fill_slots": (INTS, c_int64, INTS, BYTES, c_int64, c_int64),
}
"""The functions' parameters; an array is an address, and its length follows where that isn't known. All give int64."""


@dataclass(frozen=True, slots=True)
class Loops:
    """The functions, as :mod:`entries` describes them; they release the interpreter's lock.

    Attributes:
        owners: What the machine code lives in.
    """

    skip_value: Any
    scan: Any
    transposed: Any
    fill_slots: Any
    owners: tuple[Any, ...]


def machine() -> Any:
    """This machine, for LLVM."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    name, features = processor()
    return target.create_target_machine(name, features, opt=3, reloc="pic", codemodel="default", jit=True)


def processor() -> tuple[str, str]:
    """Its name and what it can do."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def link(code: bytes) -> Loops:
    """The functions in an object file.

    Raises:
        RuntimeError: It is none, or one of them is missing or needs what isn't there.
    """
    jit = llvm.create_lljit_compiler(machine(), use_jit_link=True)
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in ENTRIES:
        builder.export_symbol(name)
    library = builder.link(jit, "tracekit")
    functions = {name: CFUNCTYPE(c_int64, *kinds)(library[name]) for name, kinds in ENTRIES.items()}
    return Loops(**functions, owners=(library, jit))
