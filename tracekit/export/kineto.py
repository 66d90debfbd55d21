"""Write a predicted timeline as PyTorch's profiler would have recorded it on the target, for programs that read traces.

Ops, launches and kernels have the names, shapes and ids of the recorded trace, and the times of the prediction. Of the
ops, those that launched kernels are written, from their first launch to the end of their last.
"""

import gzip
from dataclasses import replace

import msgspec
import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.errors import OutputError, StepError
from tracekit.graph.nodes import NONE
from tracekit.ingest.fields import ARGUMENTS, ArgumentKind
from tracekit.messages import requests as messages
from tracekit.messages.traces import STEPS_WITHOUT_GPU_WORK
from tracekit.prediction import Prediction
from tracekit.program import Program
from tracekit.replay.engine import Timeline
from tracekit.schema import COLLECTIVE_COLUMNS, OP_INPUT_COLUMNS
from tracekit.trace import NOTES_KEY, RankTrace
from tracekit.version import __version__

GZIP_LEVEL = 6
KIND_CATEGORIES = {"memcpy": "gpu_memcpy", "memset": "gpu_memset"}
KEYS = {column: (name, kind) for name, (column, kind) in reversed(ARGUMENTS.items())}
"""Kineto's name of each argument and its type, by our column."""
COLLECTIVE_NAMES = [column.name for column in COLLECTIVE_COLUMNS]
FLOW = "ac2g"
"""Kineto's name for arrows from the CPU to the GPU."""
LISTS_AS_TEXT = ("group_ranks", "collective_id")


def render_predicted_trace(target: Prediction, *, compress: bool = True) -> bytes:
    """Return the chosen steps of a predicted timeline in Kineto's format.

    ``target`` is of one rank in the trace's own layout.

    Raises:
        OutputError: Several ranks were measured, or the layout has other kernels than the trace.
        StepError: Nothing ran on the GPU in the chosen steps.
    """
    program = target.program
    if len(program.ranks) > 1 or program.kernels.height != program.trace.activities.height:
        raise OutputError(messages.TRACE_OF_ONE_RANK_ONLY())
    timeline = target.replay_timeline()
    rows = np.flatnonzero(program.is_in_chosen_steps.to_numpy())
    if not rows.size:
        raise StepError(STEPS_WITHOUT_GPU_WORK())
    timeline = _cut_earlier_wait(program, timeline)
    head = {
        "schemaVersion": 1,
        "record_shapes": int(program.trace.has_shapes),
        "deviceProperties": [{"id": 0, "name": target.target.gpu.gpu.name}],
        **_describe_rank(program.trace),
        NOTES_KEY: __version__,
    }
    calls, activities = _build_calls(program, timeline, rows), _build_activities(program, timeline, rows)
    events = pl.concat(
        (
            _encode_steps(program, timeline),
            _encode_ops(program, timeline, rows),
            _encode_events(calls, [_encode_op_id(), _encode_argument("correlation")]),
            _encode_activities(activities),
            _encode_flows(calls, activities),
        )
    )
    text = ",\n".join(events.to_list()).encode()
    content = msgspec.json.encode(head)[:-1] + b',"traceEvents":[\n' + text + b"\n]}\n"
    return gzip.compress(content, GZIP_LEVEL, mtime=0) if compress else content


def _describe_rank(rank: RankTrace) -> dict[str, dict[str, object]]:
    """Return what PyTorch writes of a rank in a job, as far as it is known; nothing of a trace without a rank."""
    if rank.rank is None:
        return {}
    noted = rank.metadata.get("distributedInfo")
    backend = noted.get("backend") if isinstance(noted, dict) else None
    told = {"backend": backend if isinstance(backend, str) else None, "rank": rank.rank}
    size = rank.world_size if rank.world_size > rank.rank else None
    return {"distributedInfo": {key: value for key, value in {**told, "world_size": size}.items() if value is not None}}


def _cut_earlier_wait(program: Program, timeline: Timeline) -> Timeline:
    """Let the CPU do nothing before the first chosen step begins, which may wait for earlier work of the GPU.

    That work isn't written, and the step doesn't count the wait. Where the CPU is ahead by more than a step, later
    marks come before that work ends; then the first step seems longer by what its mark is early::

        CPU   |launch|launch|                         ->               ||
        GPU    .... earlier work ....|= kernel =|= ..     .............|= kernel =|= ..
    """
    if not timeline.mark_count:
        return timeline
    spans = program.step_timer.compute_step_spans(timeline)
    first, *later = np.flatnonzero(program.step_timer.is_chosen & spans.has_times)
    begin = spans.previous_end_ns[first]
    if begin < spans.begin_ns[first] or any(spans.begin_ns[later] <= begin):
        begin = spans.begin_ns[first]
    hosts = np.arange(timeline.start_ns.size) < timeline.host_node_count
    start, end = (np.where(hosts, np.maximum(ns, begin), ns) for ns in (timeline.start_ns, timeline.end_ns))
    return replace(timeline, start_ns=start, end_ns=end)


def _encode_steps(program: Program, timeline: Timeline) -> pl.Series:
    """Encode the marks of the chosen steps; a trace without marks gets one, unless it has no thread to bear it.

    A mark lasts until the step's work on the GPU ends, or until the next mark begins.
    """
    spans = program.step_timer.compute_step_spans(timeline)
    marks = timeline.start_ns[timeline.host_node_count - timeline.mark_count : timeline.host_node_count].reshape(2, -1)
    name = pl.format("ProfilerStep#{}", "step")
    table = program.steps.select("whole", "step", "pid", "tid", name=name).with_columns(
        cat=pl.lit("user_annotation"),
        began=pl.Series(spans.begin_ns),
        ended=pl.Series(spans.end_ns),
        **{
            key: pl.Series(marks[row], dtype=pl.Int64) if marks.size else None
            for row, key in enumerate(("begin", "end"))
        },
    )
    chosen = table.join(program.chosen_steps.select("step"), on="step", how="semi").drop_nulls("pid")
    begin = pl.when("whole").then("began").otherwise("begin")
    known = chosen.with_columns(begin).drop_nulls("begin").sort("begin")
    following = pl.col("begin").shift(-1).over("pid", "tid").fill_null(pl.col("ended"))
    return _encode_events(known.with_columns(end=pl.max_horizontal("end", pl.min_horizontal("ended", following))), [])


def _encode_ops(program: Program, timeline: Timeline, rows: Ints) -> pl.Series:
    """Encode the ops that launched the kernels."""
    launcher = program.graph.nodes.launcher[rows]
    calls = launcher[launcher != NONE]
    spans = pl.DataFrame({"begin": timeline.start_ns[calls], "end": timeline.end_ns[calls]}).with_columns(
        program.kernels["op_row"].gather(rows[launcher != NONE])
    )
    found = spans.drop_nulls("op_row").group_by("op_row").agg(pl.col("begin").min(), pl.col("end").max()).sort("op_row")
    table = program.trace.ops[found["op_row"].to_list()].hstack(found).with_columns(cat=pl.lit("cpu_op"))
    noted = [column.name for column in OP_INPUT_COLUMNS] + COLLECTIVE_NAMES
    return _encode_events(table, [_encode_op_id(), *map(_encode_argument, noted)])


def _build_calls(program: Program, timeline: Timeline, rows: Ints) -> pl.DataFrame:
    """Build the calls between the first activity and the last, and those that launched these, with ``op_row``."""
    nodes = program.graph.nodes
    count = nodes.n_host - nodes.n_marks
    first, last = timeline.activity_start_ns[rows].min(), timeline.activity_end_ns[rows].max()
    start = timeline.start_ns[:count]
    shown = (start >= first) & (start <= last)
    launchers = nodes.launcher[rows]
    shown[launchers[launchers != NONE]] = True
    owners = pl.DataFrame({"node": launchers, "op_row": program.kernels["op_row"].gather(rows)}).filter(
        pl.col("node") != NONE
    )
    table = pl.DataFrame(
        {
            "node": np.arange(count),
            "name": nodes.names[:count],
            "correlation": nodes.correlation[:count],
            "begin": start,
            "end": timeline.end_ns[:count],
        }
    ).filter(pl.Series(shown))
    threads = program.trace.calls.select("correlation", "pid", "tid").unique("correlation", keep="first")
    placed = table.join(threads, on="correlation", how="left", maintain_order="left")
    owned = placed.join(owners.unique("node", keep="first"), on="node", how="left", maintain_order="left")
    return owned.with_columns(cat=pl.lit("cuda_runtime"))


def _build_activities(program: Program, timeline: Timeline, rows: Ints) -> pl.DataFrame:
    """Build the kernels and copies."""
    return program.trace.activities[rows].with_columns(
        program.kernels["op_row"].gather(rows),
        begin=timeline.activity_start_ns[rows],
        end=timeline.activity_end_ns[rows],
        cat=pl.col("kind").replace(KIND_CATEGORIES),
        pid=pl.lit(0, pl.Int64),
        tid="stream",
        device=pl.lit(0),
    )


def _encode_activities(table: pl.DataFrame) -> pl.Series:
    shape = [
        pl.format(f'"{name}":{{}}', pl.when(pl.col(count).is_not_null()).then(pl.coalesce(name, flat)))
        for name, count in (("grid", "blocks"), ("block", "threads_per_block"))
        for flat in (pl.format("[{},1,1]", count),)
    ]
    noted = ["device", "stream", "correlation", "bytes", "registers_per_thread", "shared_memory_bytes", "graph_node_id"]
    return _encode_events(table, [_encode_op_id(), *shape, *map(_encode_argument, noted + COLLECTIVE_NAMES)])


def _encode_flows(calls: pl.DataFrame, activities: pl.DataFrame) -> pl.Series:
    """Encode the arrows from calls to what they launched: one from each call, one to each activity."""
    begins = calls.join(activities, on="correlation", how="semi")
    ends = activities.join(calls, on="correlation", how="semi")
    return pl.concat([_encode_arrows(begins, ph="s"), _encode_arrows(ends, ph="f", bp="e")])


def _encode_arrows(table: pl.DataFrame, **phase: str) -> pl.Series:
    """Encode one end of arrows, at the start of events with ``correlation``."""
    named = [pl.lit(text).alias(name) for name, text in {"cat": FLOW, "name": FLOW, **phase}.items()]
    arrow = pl.struct(["pid", "tid", *named], id="correlation", ts=pl.col("begin") / 1e3)
    return table.select(event=arrow.struct.json_encode())["event"]


def _encode_op_id() -> pl.Expr:
    return pl.format('"External id":{}', pl.col("op_row") + 1)


def _encode_argument(column: str) -> pl.Expr:
    """Encode an argument as a JSON member; null where it is."""
    name, kind = KEYS[column]
    if kind is not ArgumentKind.TEXT and column not in LISTS_AS_TEXT:
        return pl.format(f'"{name}":{{}}', column)
    member = pl.struct(pl.col(column).alias(name)).struct.json_encode().str.strip_prefix("{").str.strip_suffix("}")
    return pl.when(pl.col(column).is_not_null()).then(member)


def _encode_events(table: pl.DataFrame, arguments: list[pl.Expr]) -> pl.Series:
    """Encode complete events.

    The table has ``cat``, ``name``, ``pid``, ``tid``, ``begin``, ``end`` (in nanoseconds), and what ``arguments``, JSON
    members, need.
    """
    begin, end = pl.col("begin"), pl.col("end")
    told = pl.struct("cat", "name", "pid", "tid", ph=pl.lit("X"), ts=begin / 1e3, dur=(end - begin) / 1e3)
    event = told.struct.json_encode().str.strip_suffix("}")
    members = pl.concat_str(arguments, separator=",", ignore_nulls=True) if arguments else pl.lit("")
    return table.select(event=pl.concat_str(event, pl.lit(',"args":{'), members, pl.lit("}}")))["event"]
