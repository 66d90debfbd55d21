"""Compile the inner loops to object code: numba translates to LLVM IR, and LLVM optimises and emits it."""

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types

from tracekit.ingest.native import entries, linking

_Pointer: Any = types.CPointer
_NUMBA_TYPES = {
    ctypes.c_int64: types.int64,
    linking.BYTE_ARRAY: _Pointer(types.uint8),
    linking.INT8_ARRAY: _Pointer(types.int8),
    linking.INT_ARRAY: _Pointer(types.int64),
}


def object_code() -> bytes:
    """Compile all of ``linking.ENTRIES`` to one object file that does not need numba at run time."""
    machine = linking.create_machine()
    whole, *others = [_compile_entry(name) for name in linking.ENTRIES]
    for other in others:
        whole.link_in(other)
    for value in (*whole.functions, *whole.global_variables):
        if not value.is_declaration and value.name not in linking.ENTRIES:
            value.linkage = "internal"
    options = llvm.PipelineTuningOptions(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(whole, passes)
    code: bytes = machine.emit_object(whole)
    return code


def _compile_entry(name: str) -> Any:
    """Compile one entry, including everything that it calls, to an LLVM module."""
    signature = types.int64(*(_NUMBA_TYPES[kind] for kind in linking.ENTRIES[name]))
    function = numba.cfunc(signature)(getattr(entries, name))
    module = llvm.parse_assembly(function.inspect_llvm())
    module.get_function(function.native_name).name = name
    return module
