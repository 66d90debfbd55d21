"""What-if edits: a run with one thing changed, replayed.

Every edit takes a run and gives back an :class:`Edited` run, so that edits follow each other. ``apply`` reads them as
the command line writes them.
"""

from tracekit.replay.whatif.apply import Applied, WhatIf, apply
from tracekit.replay.whatif.collective import overlap, serialize
from tracekit.replay.whatif.compile import compiled
from tracekit.replay.whatif.cuda_graph import cuda_graph
from tracekit.replay.whatif.edited import Edit, Edited, saving_us, step_time_us
from tracekit.replay.whatif.fuse import fuse
from tracekit.replay.whatif.host import host_speed
from tracekit.replay.whatif.infinite_queue import infinite_queue
from tracekit.replay.whatif.no_profiler import no_profiler
from tracekit.replay.whatif.no_sync import no_sync
from tracekit.replay.whatif.pin_memory import pin_memory
from tracekit.replay.whatif.prefetch import prefetch
from tracekit.replay.whatif.read import EDITS, read
from tracekit.replay.whatif.remove import remove
from tracekit.replay.whatif.scale import scale
from tracekit.replay.whatif.select import Select

__all__ = [
    "EDITS",
    "Applied",
    "Edit",
    "Edited",
    "Select",
    "WhatIf",
    "apply",
    "compiled",
    "cuda_graph",
    "fuse",
    "host_speed",
    "infinite_queue",
    "no_profiler",
    "no_sync",
    "overlap",
    "pin_memory",
    "prefetch",
    "read",
    "remove",
    "saving_us",
    "scale",
    "serialize",
    "step_time_us",
]
