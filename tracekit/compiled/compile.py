"""Compile inner loops to object code: numba translates to LLVM IR, and LLVM optimises and emits it."""

from collections.abc import Callable, Mapping
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types

from tracekit.compiled import linking

_Pointer: Any = types.CPointer
_NUMBA_TYPES = {
    linking.INTEGER: types.int64,
    linking.BYTE_ARRAY: _Pointer(types.uint8),
    linking.INT8_ARRAY: _Pointer(types.int8),
    linking.INT_ARRAY: _Pointer(types.int64),
    linking.FLOAT_ARRAY: _Pointer(types.float64),
}


def compile_functions(functions: Mapping[str, Callable[..., int]], parameters: linking.Parameters) -> bytes:
    """Compile functions to one object file that does not need numba at run time.

    Args:
        functions: The functions by name.
        parameters: Kinds of their parameters.
    """
    machine = linking.create_machine()
    whole, *others = [_compile(name, functions[name], kinds) for name, kinds in parameters.items()]
    for other in others:
        whole.link_in(other)
    for value in (*whole.functions, *whole.global_variables):
        if not value.is_declaration and value.name not in parameters:
            value.linkage = "internal"
    options = llvm.PipelineTuningOptions(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(whole, passes)
    code: bytes = machine.emit_object(whole)
    return code


def _compile(name: str, function: Callable[..., int], kinds: tuple[Any, ...]) -> Any:
    """Compile a function, including everything that it calls, to an LLVM module."""
    signature = types.int64(*(_NUMBA_TYPES[kind] for kind in kinds))
    compiled = numba.cfunc(signature)(function)
    module = llvm.parse_assembly(compiled.inspect_llvm())
    module.get_function(compiled.native_name).name = name
    return module
