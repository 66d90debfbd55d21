"""Read an execution trace alone, as the trace of a rank without GPU activity."""

from typing import Any

import polars as pl

from tracekit import schema
from tracekit.ingest.execution_trace import (
    ExecutionTraceFile,
    decode_file,
    format_inputs,
    report_malformed_nodes,
)
from tracekit.ingest.ledger import EventCounts, build_ledger
from tracekit.messages.traces import EVENTS_READ
from tracekit.trace import RankTrace

NODE_NS = 1_000
"""Time of a node: the file has none."""
COLUMNS = ("name", "ts_ns", "dur_ns", "pid", "tid", *(column.name for column in schema.OP_INPUT_COLUMNS))
OWN_NODE = "[pytorch|profiler|"
"""How the names of its root nodes begin."""


def read_execution_ops(data: bytes, source: str) -> RankTrace:
    """Read the ops and annotations of an execution trace.

    It has no times: each node starts a microsecond after the one before, and ends when the last one inside it does.

    Raises:
        DamagedTraceError: It is invalid JSON.
        NotATraceError: It is other JSON, or of an unknown schema.
    """
    file = decode_file(data, source)
    with report_malformed_nodes(source):
        ops, annotations = _build_tables(file)
    counts = EventCounts()
    for name, table in (("ops", ops), ("annotations", annotations)):
        counts.add(EVENTS_READ, name, count=table.height)
    return RankTrace(
        source=source,
        ops=ops,
        annotations=annotations,
        calls=pl.DataFrame(schema=schema.CALLS.dtypes),
        activities=pl.DataFrame(schema=schema.ACTIVITIES.dtypes),
        syncs=pl.DataFrame(schema=schema.SYNCS.dtypes),
        overheads=pl.DataFrame(schema=schema.OVERHEADS.dtypes),
        frames=pl.DataFrame(schema=schema.FRAMES.dtypes),
        device=None,
        rank=None,
        world_size=1,
        metadata={},
        warnings=(),
        ledger=build_ledger(counts),
        thread_names=pl.DataFrame(schema=schema.THREAD_NAMES.dtypes),
    )


def _build_tables(file: ExecutionTraceFile) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Build ``schema.OPS`` and ``schema.ANNOTATIONS``."""
    nodes = sorted(file.nodes, key=lambda node: node.id)
    last = {node.id: place for place, node in enumerate(nodes)}
    # Nodes are numbered as they start: from the end, all that is inside a node is known before the node itself.
    for node in reversed(nodes):
        if node.parent_id in last:
            last[node.parent_id] = max(last[node.parent_id], last[node.id])
    ops: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for place, node in enumerate(nodes):
        if node.name.startswith(OWN_NODE):
            continue
        row = {
            "name": node.name,
            "ts_ns": place * NODE_NS,
            "dur_ns": (last[node.id] - place) * NODE_NS + NODE_NS // 2,
            "pid": file.pid or 0,
            "tid": node.attributes.get("tid", node.tid),
        }
        if node.is_annotation:
            annotations.append(row)
        else:
            ops.append(row | format_inputs(node))
    return _build_frame(schema.OPS, ops), _build_frame(schema.ANNOTATIONS, annotations)


def _build_frame(table: schema.TableSchema, rows: list[dict[str, Any]]) -> pl.DataFrame:
    return table.build_frame({name: [row.get(name) for row in rows] for name in COLUMNS if name in table.dtypes})
