"""Find the module and the line of Python that launched each kernel.

Both come from what encloses the launch: calls of Python functions, or ops that record their position. A backward pass
runs without the model's code around it. Its ops carry the sequence number of the forward op whose gradient they
compute, and what encloses that op counts.
"""

import re
import sys

import polars as pl

from tracekit.trace import RankTrace
from tracekit.workload import module_paths, torchscript_modules
from tracekit.workload.owners import find_innermost_ops

AUTOGRAD_NODE = r"^autograd::engine::evaluate_function"
BACKWARD_OP = rf"{AUTOGRAD_NODE}|Backwards?\d*$"
"""PyTorch before 1.9 recorded only the backward op."""
TORCHSCRIPT_BACKWARD = r"DifferentiableGraphBackward$"

# PyTorch itself, code that it generated, code without a file, and Python's own library.
PYTORCH_CODE = r"^(torch|torchgen|functorch|triton)/|/torchinductor_|/inductor_cache/|^nn\.Module: |^<"
PACKAGE_FOLDER = r"^.*/(?:site|dist)-packages/"
STANDARD_LIBRARY = (
    rf"^(?:.*/(?:lib/python3\.\d+|Lib)/)?(?:{'|'.join(map(re.escape, sorted(sys.stdlib_module_names)))})(?:/.*)?\.py\("
)


def find_launch_sites(trace: RankTrace, call: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Find the module and the Python line that launched each activity; null where none is known.

    Args:
        trace: What the rank recorded.
        call: For each activity, the row in ``trace.calls`` that launched it.
    """
    if trace.calls.is_empty() or not trace.has_stacks:
        nothing = pl.repeat(None, len(call), dtype=pl.String, eager=True)
        return nothing.alias("module"), nothing.alias("python_line")
    called = trace.frames.filter(trace.frames["name"].str.contains(module_paths.MODULE_CALL))
    noted = torchscript_modules.find_torchscript_modules(trace.ops)
    module = torchscript_modules.join_module_paths(
        _find_enclosing_values(trace, called, module_paths.build_module_paths(called)),
        _find_enclosing_values(trace, noted, noted["outermost"]),
        _find_enclosing_values(trace, noted, noted["inside"]),
    )
    written, lines = _select_user_frames(trace.frames), _find_recorded_lines(trace.ops)
    line = _find_enclosing_values(trace, lines, lines["name"])
    line = line.zip_with(line.is_not_null(), _find_enclosing_values(trace, written, written["name"]))
    return module.gather(call).alias("module"), line.gather(call).alias("python_line")


def _find_recorded_lines(ops: pl.DataFrame) -> pl.DataFrame:
    """Find ops that recorded their call stack; ``name`` is the innermost line of user code in it."""
    noted = ops.filter(pl.col("call_stack") != "").select("ts_ns", "dur_ns", "pid", "tid", "call_stack")
    stacks = noted.select("call_stack", name=pl.col("call_stack").str.split(";")).unique("call_stack").explode("name")
    innermost = _select_user_frames(stacks.filter(pl.col("name") != "")).unique(
        "call_stack", keep="first", maintain_order=True
    )
    return noted.join(innermost, on="call_stack", maintain_order="left")


def _select_user_frames(frames: pl.DataFrame) -> pl.DataFrame:
    """Select calls of functions of neither PyTorch nor Python; names lose the folder of installed packages."""
    shown = pl.col("name").str.replace(PACKAGE_FOLDER, "")
    names = frames.select("name").unique().with_columns(shown=shown)
    names = names.filter(~pl.col("shown").str.contains(PYTORCH_CODE), ~pl.col("shown").str.contains(STANDARD_LIBRARY))
    return frames.join(names, on="name", maintain_order="left").with_columns(name="shown")


def _find_enclosing_values(trace: RankTrace, frames: pl.DataFrame, values: pl.Series) -> pl.Series:
    """Find the value of the innermost frame around each call to the GPU, or around the call's forward op."""
    if frames.is_empty():
        return pl.repeat(None, trace.calls.height, dtype=pl.String, eager=True)
    own = find_innermost_ops(trace.calls, frames)
    nodes, forward = _link_forward_ops(trace.ops)
    node = find_innermost_ops(trace.calls, nodes)
    linked = find_innermost_ops(forward, frames).gather(node)
    inside = nodes["ts_ns"].gather(node) >= frames["ts_ns"].gather(own)
    row = linked.zip_with(linked.is_not_null() & inside.fill_null(True), own)
    return values.gather(row)


def _link_forward_ops(ops: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Find the nodes of the backward pass with a sequence number, and the forward op that created each.

    Ops that call each other have the same number until one of them creates a node, so the last one created it. Each
    thread counts for itself: among equal numbers, the latest before the node is meant. TorchScript creates a node for a
    whole graph, which is no op, and then detaches the graph's inputs.
    """
    numbered = ops.filter(pl.col("sequence") >= 0).select("ts_ns", "dur_ns", "pid", "tid", "sequence", "name")
    evaluated = numbered["name"].str.contains(AUTOGRAD_NODE)
    nodes = numbered.filter(evaluated if evaluated.any() else pl.col("name").str.contains(BACKWARD_OP)).sort("ts_ns")
    detached = numbered.filter(pl.col("name") == "aten::detach").with_columns(pl.col("sequence") - 1)
    made = pl.concat(
        [
            numbered.filter(~pl.col("name").str.contains(BACKWARD_OP)).with_columns(graph=False),
            detached.with_columns(graph=True),
        ]
    ).sort("ts_ns")
    joined = nodes.select("ts_ns", "sequence", graph=pl.col("name").str.contains(TORCHSCRIPT_BACKWARD)).join_asof(
        made.select("ts_ns", "sequence", "graph", "pid", "tid", forward_ns="ts_ns", forward_dur_ns="dur_ns"),
        on="ts_ns",
        by=["sequence", "graph"],
        check_sortedness=False,
    )
    return nodes, joined.select("pid", "tid", ts_ns="forward_ns", dur_ns=pl.col("forward_dur_ns").fill_null(0))
