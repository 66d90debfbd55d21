"""What-if edits: change one thing in a program and replay it.

Every edit takes a program and returns an :class:`EditedProgram`, so edits can be chained. To add one, write a function
under ``@edit(usage)``; ``apply_edits`` parses them in the form that the command line uses.
"""

from tracekit.whatif.collectives import overlap, serialize
from tracekit.whatif.host import (
    compile_host_work,
    cuda_graph,
    host_speed,
    infinite_queue,
    no_profiler,
    no_sync,
    pin_memory,
    prefetch,
)
from tracekit.whatif.kernels import fuse, remove, scale
from tracekit.whatif.registry import (
    EDITS,
    AppliedEdit,
    EditedProgram,
    EditFunction,
    WhatIfResult,
    apply_edits,
    compute_saving_us,
    compute_step_time_us,
    parse_edit,
)
from tracekit.whatif.select import KernelSelection

__all__ = [
    "EDITS",
    "AppliedEdit",
    "EditFunction",
    "EditedProgram",
    "KernelSelection",
    "WhatIfResult",
    "apply_edits",
    "compile_host_work",
    "compute_saving_us",
    "compute_step_time_us",
    "cuda_graph",
    "fuse",
    "host_speed",
    "infinite_queue",
    "no_profiler",
    "no_sync",
    "overlap",
    "parse_edit",
    "pin_memory",
    "prefetch",
    "remove",
    "scale",
    "serialize",
]
