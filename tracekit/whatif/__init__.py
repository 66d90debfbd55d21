"""What-if edits: change one thing in a program and replay it.

Every edit takes a program and returns an :class:`EditedProgram`, so edits can be chained. ``apply_edits`` parses them
in the form that the command line uses.
"""

from tracekit.whatif.apply import AppliedEdit, WhatIfResult, apply_edits
from tracekit.whatif.collective import overlap, serialize
from tracekit.whatif.compile import compile_host_work
from tracekit.whatif.cuda_graph import cuda_graph
from tracekit.whatif.edited import EditedProgram, EditFunction, compute_saving_us, compute_step_time_us
from tracekit.whatif.fuse import fuse
from tracekit.whatif.host_speed import host_speed
from tracekit.whatif.infinite_queue import infinite_queue
from tracekit.whatif.no_profiler import no_profiler
from tracekit.whatif.no_sync import no_sync
from tracekit.whatif.parse import EDITS, parse_edit
from tracekit.whatif.pin_memory import pin_memory
from tracekit.whatif.prefetch import prefetch
from tracekit.whatif.remove import remove
from tracekit.whatif.scale import scale
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
