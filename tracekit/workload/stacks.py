"""Which module, and which line of Python, launched each kernel.

What encloses the launch tells: calls of Python, or ops that note where they stand. A backward pass runs without the
model's code around it: its ops carry the sequence number of the forward op whose gradient they compute, and what
encloses that op tells.
"""

import re
import sys

import polars as pl

from tracekit.trace import RankTrace
from tracekit.workload import modules, scripted
from tracekit.workload.owners import innermost_ops

NODE = r"^autograd::engine::evaluate_function"
BACKWARD = rf"{NODE}|Backwards?\d*$"
"""PyTorch before 1.9 noted the backward op alone."""
GRAPH = r"DifferentiableGraphBackward$"

# PyTorch itself, code that it generated, what has no file, and Python's own library.
PYTORCH = r"^(torch|torchgen|functorch|triton)/|/torchinductor_|/inductor_cache/|^nn\.Module: |^<"
INSTALLED = r"^.*/(?:site|dist)-packages/"
LIBRARY = (
    rf"^(?:.*/(?:lib/python3\.\d+|Lib)/)?(?:{'|'.join(map(re.escape, sorted(sys.stdlib_module_names)))})(?:/.*)?\.py\("
)


def launched_at(trace: RankTrace, call: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The module and the Python line that launched each activity; null where nothing tells.

    Args:
        trace: What the rank recorded.
        call: Of each activity, the row in ``trace.calls`` that launched it.
    """
    if trace.calls.is_empty() or not trace.stacks_recorded:
        nothing = pl.repeat(None, len(call), dtype=pl.String, eager=True)
        return nothing.alias("module"), nothing.alias("python_line")
    called = trace.frames.filter(trace.frames["name"].str.contains(modules.MODULE))
    noted = scripted.modules(trace.ops)
    module = scripted.path(
        _around(trace, called, modules.paths(called)),
        _around(trace, noted, noted["outermost"]),
        _around(trace, noted, noted["inside"]),
    )
    written, lines = _by_users(trace.frames), _noted_lines(trace.ops)
    line = _around(trace, lines, lines["name"])
    line = line.zip_with(line.is_not_null(), _around(trace, written, written["name"]))
    return module.gather(call).alias("module"), line.gather(call).alias("python_line")


def _noted_lines(ops: pl.DataFrame) -> pl.DataFrame:
    """Ops that note the lines of code around them, each with the innermost one of a user as ``name``."""
    noted = ops.filter(pl.col("call_stack") != "").select("ts_ns", "dur_ns", "pid", "tid", "call_stack")
    stacks = noted.select("call_stack", name=pl.col("call_stack").str.split(";")).unique("call_stack").explode("name")
    innermost = _by_users(stacks.filter(pl.col("name") != "")).unique("call_stack", keep="first", maintain_order=True)
    return noted.join(innermost, on="call_stack", maintain_order="left")


def _by_users(frames: pl.DataFrame) -> pl.DataFrame:
    """Calls of functions that are neither PyTorch's nor Python's; names without the folder of installed packages."""
    shown = pl.col("name").str.replace(INSTALLED, "")
    names = frames.select("name").unique().with_columns(shown=shown)
    names = names.filter(~pl.col("shown").str.contains(PYTORCH), ~pl.col("shown").str.contains(LIBRARY))
    return frames.join(names, on="name", maintain_order="left").with_columns(name="shown")


def _around(trace: RankTrace, frames: pl.DataFrame, values: pl.Series) -> pl.Series:
    """Of each call to the GPU, the value of the innermost frame around it, or around the forward op it belongs to."""
    if frames.is_empty():
        return pl.repeat(None, trace.calls.height, dtype=pl.String, eager=True)
    own = innermost_ops(trace.calls, frames)
    nodes, forward = _forward_ops(trace.ops)
    node = innermost_ops(trace.calls, nodes)
    linked = innermost_ops(forward, frames).gather(node)
    inside = nodes["ts_ns"].gather(node) >= frames["ts_ns"].gather(own)
    row = linked.zip_with(linked.is_not_null() & inside.fill_null(True), own)
    return values.gather(row)


def _forward_ops(ops: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Nodes of the backward pass with a sequence number, and of each the forward op that made it.

    Ops that call each other share a number until one of them makes a node, so the last one made it. Each thread has
    numbers of its own: of equal ones the latest before the node is meant. TorchScript makes the node of a whole graph,
    which is no op, and then detaches its inputs.
    """
    numbered = ops.filter(pl.col("sequence") >= 0).select("ts_ns", "dur_ns", "pid", "tid", "sequence", "name")
    evaluated = numbered["name"].str.contains(NODE)
    nodes = numbered.filter(evaluated if evaluated.any() else pl.col("name").str.contains(BACKWARD)).sort("ts_ns")
    detached = numbered.filter(pl.col("name") == "aten::detach").with_columns(pl.col("sequence") - 1)
    made = pl.concat(
        [
            numbered.filter(~pl.col("name").str.contains(BACKWARD)).with_columns(graph=False),
            detached.with_columns(graph=True),
        ]
    ).sort("ts_ns")
    joined = nodes.select("ts_ns", "sequence", graph=pl.col("name").str.contains(GRAPH)).join_asof(
        made.select("ts_ns", "sequence", "graph", "pid", "tid", forward_ns="ts_ns", forward_dur_ns="dur_ns"),
        on="ts_ns",
        by=["sequence", "graph"],
        check_sortedness=False,
    )
    return nodes, joined.select("pid", "tid", ts_ns="forward_ns", dur_ns=pl.col("forward_dur_ns").fill_null(0))
