"""Find the module, the line of Python and the phase of the step that launched each kernel.

Modules have paths, from the calls that Python's profiler recorded: ``nn.Module: Linear_7``.
The profiler numbers all modules of a class in the order of their first call. A path numbers them within the calling
module instead. This distinguishes repeated layers, and gives the parts of each layer the same names:
``Llama.LlamaLayer_3.LlamaMLP.Linear_0``.
"""

import re
import sys

import numpy as np
import polars as pl

from tracekit.arrays import DistinctNames, Ints, gather_rows, make_nulls, number_pairs
from tracekit.nested_calls import NO_CALLER, find_enclosing_calls
from tracekit.trace import RankTrace
from tracekit.workload.owners import find_innermost_ops

MODULE_CALL = r"^nn\.Module: (.+)_(\d+)$"


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


SCRIPTED_CALL = r"[^.():]+\([^()]*\)::"
OUTERMOST_CALL = r"^TOP\(([^()]+)\)"
SELF_NAMES = ("TOP", "SELF")
"""Names of a module that calls a method of its own."""
UNNAMED_INSTANCE = "INSTANCE_NAME_UNKNOWN"

PYTHON_WRAPPER = r"\b(?:RecursiveScriptModule|TopLevelTracedModule|TracedModule)((?:_\d+)?)$"
"""Python's class name of the outermost module, whatever its original class."""

SPAN_COLUMNS = ("ts_ns", "dur_ns", "pid", "tid")


def find_torchscript_modules(ops: pl.DataFrame) -> pl.DataFrame:
    """Find ops with a module: ``SPAN_COLUMNS``, ``outermost`` (its class) and ``inside`` (labels of modules in it).

    Code optimised by TorchScript doesn't name the outermost module; the op of that module's call does.
    """
    noted = ops.filter(pl.col("module_hierarchy") != "").select(*SPAN_COLUMNS, "module_hierarchy")
    texts = noted.select("module_hierarchy").unique(maintain_order=True)
    label = texts.select("module_hierarchy", call=pl.col("module_hierarchy").str.extract_all(SCRIPTED_CALL)).explode(
        "call"
    )
    name, cls = pl.col("call").str.extract(r"^([^(]+)"), pl.col("call").str.extract(r"\(([^()]+)\)")
    labels = label.filter(cls.is_not_null(), ~name.is_in(SELF_NAMES)).select(
        "module_hierarchy", label=pl.when(name == UNNAMED_INSTANCE).then(cls).otherwise(pl.format("{}_{}", cls, name))
    )
    inside = labels.group_by("module_hierarchy", maintain_order=True).agg(inside=pl.col("label").str.join("."))
    told = noted.join(inside, on="module_hierarchy", how="left", maintain_order="left").with_columns(
        outermost=pl.col("module_hierarchy").str.extract(OUTERMOST_CALL)
    )
    calls = told.drop_nulls("outermost")
    around = calls["outermost"].gather(find_innermost_ops(told, calls))
    known = told.with_columns(outermost=pl.coalesce("outermost", around))
    return known.filter(pl.any_horizontal(pl.col("outermost", "inside").is_not_null()))


def join_module_paths(python: pl.Series, outermost: pl.Series, inside: pl.Series) -> pl.Series:
    """Join the paths of modules that Python's profiler recorded with those of TorchScript below them.

    Args:
        python: Path of Python's innermost module; null if unknown.
        outermost: Class of TorchScript's outermost module; null outside of TorchScript, or if unknown.
        inside: Labels of the modules within it; null if there is none.
    """
    table = pl.DataFrame({"python": python, "outermost": outermost, "inside": inside})
    named = pl.col("python").str.replace(PYTHON_WRAPPER, pl.concat_str("outermost", pl.lit("$1")))
    above = pl.coalesce(named, "python", "outermost")
    return table.select(pl.concat_str(above, "inside", separator=".", ignore_nulls=True)).to_series().replace("", None)


FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"

# Names of ops and annotations that enclose launches. Users also annotate ranges such as "## backward ##".
PHASE_MARKS = {
    OPTIMIZER: r"^Optimizer\.(step|zero_grad)#|^(?i:\W*(optimizer|optimizer[ ._]step|zero_grad)\W*)$",
    BACKWARD: r"^autograd::engine::evaluate_function|Backward\d*$|^(?i:\W*(backward|loss[ ._]backward)\W*)$",
    FORWARD: r"^(?i:\W*forward\W*)$",
}
FUSED_OPTIMIZER_OP = r"^aten::_fused_(adam|adamw|sgd|adagrad)_?"
BACKWARD_NAME = r"(?i)_bwd|bwd_|dgrad|wgrad|_wrw|backward"


def find_enclosing_phases(calls: pl.DataFrame, *ranges: pl.DataFrame) -> pl.Series:
    """Find the phase of the op or annotation that encloses the start of each call on its thread; null without one.

    Args:
        calls: ``schema.CALLS``.
        ranges: Tables of ops or annotations: ``name``, ``ts_ns``, ``dur_ns``, ``pid``, ``tid``.
    """
    marks, phases = [], []
    for table in ranges:
        names = DistinctNames.from_column(table["name"])
        phase = np.array([_classify_mark(name) for name in names.names], np.int64)[names.number]
        rows = np.flatnonzero(phase < len(PHASE_MARKS))
        marks.append(table[["ts_ns", "dur_ns", "pid", "tid"]][rows])
        phases.append(phase[rows])
    named = pl.Series("phase", list(PHASE_MARKS))[np.concatenate(phases)]
    return gather_rows(named, find_innermost_ops(calls, pl.concat(marks)))


def _classify_mark(name: str) -> int:
    """Return the place in ``PHASE_MARKS`` of the phase that a name marks, or their number."""
    return next((at for at, mark in enumerate(PHASE_MARKS.values()) if re.search(mark, name)), len(PHASE_MARKS))


def find_launch_phases(trace: RankTrace, call: pl.Series) -> pl.Series:
    """Find the phase in which each activity was launched, or captured; null where none is known.

    ``call`` is, for each activity, the row in ``trace.calls`` that launched it.
    """
    phase = find_enclosing_phases(trace.calls, trace.ops, trace.annotations)
    of_call = gather_rows(phase, call)
    if trace.captured is None:
        return of_call
    captured = find_enclosing_phases(trace.captured.calls, trace.captured.ops)
    of_capture = captured.gather(trace.captured.call_row)
    return of_capture.zip_with(of_capture.is_not_null(), of_call)


def classify_phase(launched: str) -> pl.Expr:
    """Classify each row of the kernel table by phase.

    ``launched`` is a column with the result of ``find_launch_phases``.
    """
    # A transposed convolution's forward pass runs another one's dgrad kernel.
    by_name = pl.col("name").str.contains(BACKWARD_NAME) & pl.col("op").str.contains(BACKWARD_NAME).fill_null(True)
    backward = pl.col("direction").is_in(["backward", "dgrad", "wgrad"]) | by_name
    return (
        pl.when(pl.col("op").str.contains(FUSED_OPTIMIZER_OP))
        .then(pl.lit(OPTIMIZER))
        .when(pl.col(launched).is_not_null())
        .then(launched)
        .when(backward.fill_null(False))
        .then(pl.lit(BACKWARD))
        .when(pl.col("family") == "optimizer")
        .then(pl.lit(OPTIMIZER))
        .otherwise(pl.lit(FORWARD))
    )


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

    ``call`` is, for each activity, the row in ``trace.calls`` that launched it.
    """
    if trace.calls.is_empty() or not trace.has_stacks:
        return make_nulls("module", len(call), pl.String), make_nulls("python_line", len(call), pl.String)
    called = trace.frames.filter(trace.frames["name"].str.contains(MODULE_CALL))
    noted = find_torchscript_modules(trace.ops)
    module = join_module_paths(
        _find_enclosing_values(trace, called, build_module_paths(called)),
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
