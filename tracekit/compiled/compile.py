"""Compile inner loops to object code: numba translates to LLVM IR, and LLVM optimises and emits it."""

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types

from tracekit.compiled import units

_Pointer: Any = types.CPointer
_NUMBA_TYPES = {
    units.INTEGER: types.int64,
    units.BYTE_ARRAY: _Pointer(types.uint8),
    units.INT8_ARRAY: _Pointer(types.int8),
    units.INT_ARRAY: _Pointer(types.int64),
    units.FLOAT_ARRAY: _Pointer(types.float64),
}


def compile_unit(unit: units.Unit, machine: Any) -> bytes:
    """Compile functions to one object file that does not need numba at run time."""
    functions = unit.import_functions()
    whole, *others = [_compile(unit.symbols[name], functions[name], kinds) for name, kinds in unit.parameters.items()]
    for other in others:
        whole.link_in(other)
    for value in (*whole.functions, *whole.global_variables):
        if not value.is_declaration and value.name not in unit.symbols.values():
            value.linkage = "internal"
    options = llvm.PipelineTuningOptions(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(whole, passes)
    code: bytes = machine.emit_object(whole)
    return code


def _compile(symbol: str, function: Callable[..., int], kinds: tuple[Any, ...]) -> Any:
    """Compile a function, including everything that it calls, to an LLVM module."""
    signature = types.int64(*(_NUMBA_TYPES[kind] for kind in kinds))
    compiled = numba.cfunc(signature)(function)
    module = llvm.parse_assembly(compiled.inspect_llvm())
    module.get_function(compiled.native_name).name = symbol
    return module
