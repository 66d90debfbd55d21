"""Edit: fuse kernels that follow one another."""

import numpy as np
import polars as pl

from predictors.kernels import DTYPE_BYTES, MEMORY_FAMILIES
from tracekit.arrays import Bools, Floats, Ints
from tracekit.errors import WhatIfError
from tracekit.graph.nodes import NONE
from tracekit.messages import what_ifs as messages
from tracekit.program import Program
from tracekit.whatif.edited import EditedProgram, scale_kernel_times
from tracekit.whatif.launches import find_launch_calls, remove_launches
from tracekit.whatif.select import KernelSelection
from tracekit.whatif.sequences import find_launch_sequences


def fuse(program: Program, select: KernelSelection) -> EditedProgram:
    """Fuse kernels that follow one another on a stream into one launch.

    The fused kernel takes the sum of their times, minus memory traffic that fusion saves. A tensor that one kernel
    wrote and the next one read is neither written nor read any more; this is applied only if both kernels are
    memory-bound, have the same size and their bytes are known. Kernels aren't fused across steps, threads or waits of
    the host for the GPU.

    Raises:
        WhatIfError: No two of the kernels follow one another.
    """
    rows = select.find_rows(program)
    before, after = _find_fusible_pairs(program, rows)
    if not after.size:
        raise WhatIfError(messages.KERNELS_NOT_ADJACENT(selection=str(select)))
    fused = np.zeros(rows.size, dtype=np.bool_)
    fused[after] = True
    count = int(np.unique(np.concatenate([before, after])).size)
    left = scale_kernel_times(remove_launches(program, fused), _compute_traffic_factors(program, before, after))
    return EditedProgram(left, count, messages.KERNELS_FUSED(kernels=count, fused=count - int(after.size)))


def _find_fusible_pairs(program: Program, rows: Bools) -> tuple[Ints, Ints]:
    """Find pairs of kernel rows, neighbours on a stream, that one launch could replace."""
    nodes = program.graph.nodes
    before, after = (pair - nodes.n_host for pair in nodes.find_neighbours(nodes.activities))
    number = np.concatenate([find_launch_sequences(program, find_launch_calls(program, rows)).sequence_id, [NONE]])[
        nodes.launcher
    ]
    together = rows[before] & rows[after] & (number[before] == number[after]) & (number[after] != NONE)
    return before[together], after[together]


def _compute_traffic_factors(program: Program, before: Ints, after: Ints) -> Floats:
    """Compute the fraction of each kernel's memory traffic that remains."""
    known = program.kernels.select(
        bytes="bytes",
        elements=pl.col("rows") * pl.col("cols"),
        item=pl.col("dtype").replace_strict(DTYPE_BYTES, default=None, return_dtype=pl.Float64),
        bound=pl.col("family").is_in(MEMORY_FAMILIES),
    )
    first, second = known[before.tolist()], known[after.tolist()]
    alike = first["bound"] & second["bound"] & (first["elements"] == second["elements"])
    passed = (first["elements"] * first["item"]).set(~alike.fill_null(False), 0).fill_null(0).to_numpy()
    saved = np.zeros(program.kernels.height)
    np.add.at(saved, before, passed)
    np.add.at(saved, after, passed)
    whole = known["bytes"].fill_null(0).to_numpy()
    return np.where(whole > 0, np.maximum(1 - saved / np.maximum(whole, 1), 0.0), 1.0)
