"""The machine that loops are compiled for."""

from typing import Any

import llvmlite.binding as llvm


def create_machine() -> Any:
    """Create LLVM's target machine for any computer of this architecture: more features gained no time."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(opt=3, reloc="pic", codemodel="default", jit=True)
