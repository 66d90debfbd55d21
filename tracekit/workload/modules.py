"""Paths of modules, from the calls that Python's profiler recorded: ``nn.Module: Linear_7``.

Their numbers count all modules of a class in the order of their first call. A path counts them within the module that
calls them, which tells a repeated layer from the next one and gives its parts the same names in each:
``Llama.LlamaLayer_3.LlamaMLP.Linear_0``.
"""

import numba
import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.workload.owners import thread_numbers

MODULE = r"^nn\.Module: (.+)_(\d+)$"
NOBODY = -1


def paths(calls: pl.DataFrame) -> pl.Series:
    """The path of the module that each call is of, by class; classes that a module has once there have no number.

    A module has one path, that of its most deeply nested call: recomputed activations call a layer without the model
    around it.

    Args:
        calls: Calls of modules (``schema.FRAMES``), in order of time.
    """
    if calls.is_empty():
        return pl.Series("module", [], dtype=pl.String)
    caller, depth = _callers(calls)
    called = calls.select(
        "name",
        row=pl.int_range(pl.len(), dtype=pl.Int64),
        depth=pl.Series(depth),
        by=calls["name"].gather(pl.Series(caller).replace(NOBODY, None)),
        cls=pl.col("name").str.extract(MODULE, 1),
    )
    chosen = called.sort("depth", "row", descending=[True, False]).unique("name", keep="first", maintain_order=True)
    first = called.group_by("name").agg(first=pl.col("row").min())
    modules = chosen.join(first, on="name").sort("first")
    alike = pl.int_range(pl.len()).over("by", "cls"), pl.len().over("by", "cls")
    labels = modules.with_columns(number=alike[0], many=alike[1] > 1).with_columns(
        label=pl.when("many").then(pl.format("{}_{}", "cls", "number")).otherwise("cls")
    )
    label = called.join(labels.select("name", "label"), on="name", how="left", maintain_order="left")["label"]
    found = labels.select("name", path=_joined(label, caller, labels["row"].to_numpy()))
    return calls.select("name").join(found, on="name", how="left", maintain_order="left")["path"].alias("module")


def _joined(label: pl.Series, caller: Ints, rows: Ints) -> pl.Series:
    """For some calls the labels of all that enclose them, outermost first."""
    path, at = label.gather(rows), caller[rows]
    while (at != NOBODY).any():
        outer = label.gather(pl.Series(at).replace(NOBODY, None))
        path = pl.select(pl.concat_str(outer, path, separator=".", ignore_nulls=True)).to_series()
        at = np.where(at == NOBODY, NOBODY, caller[at])
    return path


def _callers(calls: pl.DataFrame) -> tuple[Ints, Ints]:
    """The row of the call around each one on its thread, and how many there are around it."""
    (thread,) = thread_numbers(calls)
    start, end = calls["ts_ns"].to_numpy(), (calls["ts_ns"] + calls["dur_ns"]).to_numpy()
    order = np.lexsort((-end, start, thread))
    outer, found = _enclosing(thread[order], start[order], end[order])
    caller, depth = np.full(order.size, NOBODY), np.zeros(order.size, dtype=np.int64)
    caller[order] = np.where(outer == NOBODY, NOBODY, order[outer])
    depth[order] = found
    return caller, depth


@numba.njit(cache=True)
def _enclosing(thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Innermost call around each, and how many; ordered by thread and time, outer ones first."""
    outer = np.full(start.size, NOBODY, dtype=np.int64)
    depths = np.zeros(start.size, dtype=np.int64)
    stack = np.empty(start.size + 1, dtype=np.int64)
    depth = 0
    for call in range(start.size):
        while depth > 0 and (thread[stack[depth - 1]] != thread[call] or end[stack[depth - 1]] <= start[call]):
            depth -= 1
        if depth > 0:
            outer[call] = stack[depth - 1]
        depths[call] = depth
        stack[depth] = call
        depth += 1
    return outer, depths
