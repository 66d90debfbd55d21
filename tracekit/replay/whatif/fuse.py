"""Kernels that follow each other as one."""

import numpy as np
import polars as pl

from predictors.kernels import DTYPE_BYTES, MEMORY_FAMILIES
from tracekit.arrays import Bools, Floats, Ints
from tracekit.errors import WhatIfError
from tracekit.graph.nodes import NONE
from tracekit.replay.run import Run
from tracekit.replay.whatif.edited import Edited, with_factors
from tracekit.replay.whatif.launches import calls_of, without_launches
from tracekit.replay.whatif.select import Select
from tracekit.replay.whatif.sequences import sequences


def fuse(run: Run, select: Select) -> Edited:
    """Kernels that follow each other on a stream become one launch.

    It takes their times together. What one of them wrote for the next one to read is neither written nor read any
    more, where both are bound by memory and of one size, and their bytes are known: that much of their time is saved.
    Kernels are not fused across steps, threads or a wait of the CPU for the GPU.

    Raises:
        WhatIfError: No two of the kernels follow each other.
    """
    rows = select.rows(run)
    before, after = _neighbours(run, rows)
    if not after.size:
        raise WhatIfError(f"no two {select} follow each other without a wait in between.")
    fused = np.zeros(rows.size, dtype=np.bool_)
    fused[after] = True
    count = int(np.unique(np.concatenate([before, after])).size)
    left = with_factors(without_launches(run, fused), _factors(run, before, after))
    return Edited(left, count, f"{count:,} kernels become {count - after.size:,}")


def _neighbours(run: Run, rows: Bools) -> tuple[Ints, Ints]:
    """Rows of kernels, and of the next one on the stream, that one launch could stand for."""
    nodes = run.graph.nodes
    before, after = (pair - nodes.cpu for pair in nodes.neighbours(nodes.activities))
    number = np.concatenate([sequences(run, calls_of(run, rows)).number, [NONE]])[nodes.launcher]
    together = rows[before] & rows[after] & (number[before] == number[after]) & (number[after] != NONE)
    return before[together], after[together]


def _factors(run: Run, before: Ints, after: Ints) -> Floats:
    """By kernel, the part of its traffic that is left."""
    known = run.kernels.select(
        bytes="bytes",
        elements=pl.col("rows") * pl.col("cols"),
        item=pl.col("dtype").replace_strict(DTYPE_BYTES, default=None, return_dtype=pl.Float64),
        bound=pl.col("family").is_in(MEMORY_FAMILIES),
    )
    first, second = known[before.tolist()], known[after.tolist()]
    alike = first["bound"] & second["bound"] & (first["elements"] == second["elements"])
    passed = (first["elements"] * first["item"]).set(~alike.fill_null(False), 0).fill_null(0).to_numpy()
    saved = np.zeros(run.kernels.height)
    np.add.at(saved, before, passed)
    np.add.at(saved, after, passed)
    whole = known["bytes"].fill_null(0).to_numpy()
    return np.where(whole > 0, np.maximum(1 - saved / np.maximum(whole, 1), 0.0), 1.0)
