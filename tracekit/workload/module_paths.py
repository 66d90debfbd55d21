"""Build the paths of modules from the calls that Python's profiler recorded: ``nn.Module: Linear_7``.

The profiler numbers all modules of a class in the order of their first call. A path numbers them within the calling
module instead. This distinguishes repeated layers, and gives the parts of each layer the same names:
``Llama.LlamaLayer_3.LlamaMLP.Linear_0``.
"""

import numpy as np
import polars as pl

from tracekit.arrays import Ints, number_pairs
from tracekit.compiled import compile_lazily

MODULE_CALL = r"^nn\.Module: (.+)_(\d+)$"
NO_CALLER = -1


def build_module_paths(calls: pl.DataFrame) -> pl.Series:
    """Build the path of the called module for each call; a class that a module has once gets no number.

    A module has one path, that of its most deeply nested call: recomputed activations call a layer without the model
    around it.

    Args:
        calls: Calls of modules (``schema.FRAMES``), in order of time.
    """
    if calls.is_empty():
        return pl.Series("module", [], dtype=pl.String)
    caller, depth = _find_callers(calls)
    called = calls.select(
        "name",
        row=pl.int_range(pl.len(), dtype=pl.Int64),
        depth=pl.Series(depth),
        by=calls["name"].gather(pl.Series(caller).replace(NO_CALLER, None)),
        cls=pl.col("name").str.extract(MODULE_CALL, 1),
    )
    chosen = called.sort("depth", "row", descending=[True, False]).unique("name", keep="first", maintain_order=True)
    first = called.group_by("name").agg(first=pl.col("row").min())
    modules = chosen.join(first, on="name").sort("first")
    alike = pl.int_range(pl.len()).over("by", "cls"), pl.len().over("by", "cls")
    labels = modules.with_columns(number=alike[0], many=alike[1] > 1).with_columns(
        label=pl.when("many").then(pl.format("{}_{}", "cls", "number")).otherwise("cls")
    )
    label = called.join(labels.select("name", "label"), on="name", how="left", maintain_order="left")["label"]
    found = labels.select("name", path=_join_labels(label, caller, labels["row"].to_numpy()))
    return calls.select("name").join(found, on="name", how="left", maintain_order="left")["path"].alias("module")


def _join_labels(label: pl.Series, caller: Ints, rows: Ints) -> pl.Series:
    """Join the labels of all calls that enclose the given rows, outermost first."""
    path, at = label.gather(rows), caller[rows]
    while (at != NO_CALLER).any():
        outer = label.gather(pl.Series(at).replace(NO_CALLER, None))
        path = pl.select(pl.concat_str(outer, path, separator=".", ignore_nulls=True)).to_series()
        at = np.where(at == NO_CALLER, NO_CALLER, caller[at])
    return path


def _find_callers(calls: pl.DataFrame) -> tuple[Ints, Ints]:
    """Find the row of the enclosing call on the same thread, and the number of enclosing calls."""
    (thread,) = number_pairs((calls,), "pid", "tid")
    start, end = calls["ts_ns"].to_numpy(), (calls["ts_ns"] + calls["dur_ns"]).to_numpy()
    order = np.lexsort((-end, start, thread))
    outer, found = find_enclosing_calls(thread[order], start[order], end[order])
    caller, depth = np.full(order.size, NO_CALLER), np.zeros(order.size, dtype=np.int64)
    caller[order] = np.where(outer == NO_CALLER, NO_CALLER, order[outer])
    depth[order] = found
    return caller, depth


def find_enclosing_calls(thread: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Find the innermost enclosing call and its depth; input ordered by thread and time, outer calls first."""
    outer, depths = np.full(start.size, NO_CALLER, dtype=np.int64), np.zeros(start.size, dtype=np.int64)
    _find_enclosing(start.size, thread, start, end, np.empty(start.size, dtype=np.int64), outer, depths)
    return outer, depths


@compile_lazily
def _find_enclosing(
    calls: int, thread: Ints, start: Ints, end: Ints, stack: Ints, outer: Ints, depths: Ints
) -> int:  # pragma: no cover - compiled
    depth = 0
    for call in range(calls):
        while depth > 0 and (thread[stack[depth - 1]] != thread[call] or end[stack[depth - 1]] <= start[call]):
            depth -= 1
        if depth > 0:
            outer[call] = stack[depth - 1]
        depths[call] = depth
        stack[depth] = call
        depth += 1
    return 0
