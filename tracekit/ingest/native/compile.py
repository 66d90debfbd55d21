"""The inner loops to object code: numba makes LLVM's language of them, LLVM the rest."""

import ctypes
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types

from tracekit.ingest.native import entries, linking

_pointer: Any = types.CPointer
_TYPES = {
    ctypes.c_int64: types.int64,
    linking.BYTES: _pointer(types.uint8),
    linking.INT8S: _pointer(types.int8),
    linking.INTS: _pointer(types.int64),
}


def object_code() -> bytes:
    """One object file with all of ``linking.ENTRIES``, and nothing that would need numba at run time."""
    machine = linking.machine()
    whole, *others = [_module(name) for name in linking.ENTRIES]
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


def _module(name: str) -> Any:
    """What numba makes of one entry; what it calls is in it."""
    signature = types.int64(*(_TYPES[kind] for kind in linking.ENTRIES[name]))
    function = numba.cfunc(signature)(getattr(entries, name))
    module = llvm.parse_assembly(function.inspect_llvm())
    module.get_function(function.native_name).name = name
    return module
