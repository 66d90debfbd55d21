"""Join an execution trace (Chakra, PyTorch's ExecutionTraceObserver) to the profiler trace of the same run.

It holds what the profiler may not record: shapes and types of every op, and the sizes of collectives.
"""

import json
import re
from dataclasses import replace
from typing import Any

import polars as pl

from tracekit.errors import TraceError
from tracekit.ingest.execution_nodes import ExecutionTrace, read_execution_trace
from tracekit.messages import traces as messages
from tracekit.messages.traces import SHAPES_NOT_RECORDED
from tracekit.schema import COLLECTIVE_COLUMNS, OP_INPUT_COLUMNS, OPS
from tracekit.trace import RankTrace

FILLED_COLUMNS = tuple(column.name for column in (*OP_INPUT_COLUMNS, *COLLECTIVE_COLUMNS))

_HEAD_PATTERN = re.compile(rb'^\s*\{\s*"schema"\s*:\s*"\d+\.\d+\.\d+[^"]*"\s*,\s*"(?:pid|time|start_ts|nodes)"\s*:')
_MIN_NAME_AGREEMENT = 0.99
_ID_COLUMN = "record_function_id"
_OBSERVED_SUFFIX = "_observed"


def is_execution_trace(head: bytes) -> bool:
    """Return whether the head of a file is that of an execution trace."""
    return _HEAD_PATTERN.match(head) is not None


def join_execution_trace(rank: RankTrace, execution_trace: bytes, source: str) -> RankTrace:
    """Fill in shapes, types and collective sizes that ``rank`` lacks and its execution trace has.

    Ops are joined by their record function id. PyTorch before 2.3 does not write it into the trace. Then the ops of
    every thread must be the same, in the same order and with the same shapes, or nothing is joined.

    Args:
        rank: A trace as it was read.
        execution_trace: The execution trace's JSON text.
        source: Name of the execution trace in messages.

    Raises:
        DamagedTraceError: It is invalid JSON.
        NotATraceError: It is other JSON.
        TraceError: It is of another rank or run, or there is nothing to join by.
    """
    other = read_execution_trace(execution_trace, source)
    _check_process(rank, other, source)
    ids = rank.ops[_ID_COLUMN].replace(0, None)
    if ids.count():
        nodes = _match_by_id(rank.ops.select(ids, "name"), other.nodes, rank.source, source)
    else:
        ids, nodes = _match_by_order(rank, other.nodes, source), other.nodes
    ops, shapes, sizes = _fill_columns(rank.ops.with_columns(ids), nodes)
    done = messages.EXECUTION_TRACE_JOINED(ops=shapes, collectives=sizes, path=source)
    still = (warning for warning in rank.warnings if not (shapes and warning.template is SHAPES_NOT_RECORDED))
    return replace(rank, ops=ops, warnings=(*still, done))


def _check_process(rank: RankTrace, other: ExecutionTrace, source: str) -> None:
    if rank.ops.is_empty():
        raise TraceError(messages.EXECUTION_TRACE_WITHOUT_OPS(trace=rank.source, path=source))
    known = rank.ops["pid"].drop_nulls().unique().sort().to_list()
    if other.pid is not None and known and other.pid not in known:
        raise TraceError(
            messages.EXECUTION_TRACE_OF_OTHER_PROCESS(
                path=source, process=other.pid, trace=rank.source, processes=known[:3]
            )
        )


def _match_by_id(ops: pl.DataFrame, nodes: pl.DataFrame, trace: str, source: str) -> pl.DataFrame:
    """Return the nodes that are ops of the trace: the same name and the same id, used once."""
    nodes = nodes.unique(_ID_COLUMN, keep="none", maintain_order=True)
    common = nodes.join(
        ops.select(_ID_COLUMN, op="name").unique(_ID_COLUMN, keep="none"), on=_ID_COLUMN, maintain_order="left"
    )
    if common.is_empty():
        raise TraceError(messages.EXECUTION_TRACE_WITHOUT_COMMON_IDS(trace=trace, path=source))
    same = common.filter(pl.col("name") == pl.col("op"))
    if same.height < _MIN_NAME_AGREEMENT * common.height:
        raise TraceError(
            messages.EXECUTION_TRACE_OPS_DIFFER(
                path=source, trace=trace, differing=common.height - same.height, common=common.height
            )
        )
    return same.drop("op")


def _match_by_order(rank: RankTrace, nodes: pl.DataFrame, source: str) -> pl.Series:
    """Return the id of each op, if the ops of each thread are exactly its nodes."""
    ops = rank.ops.select("tid", "name", "external_id", "input_dims").with_row_index("row")
    if ops["external_id"].null_count() or not ops["input_dims"].count() or nodes[_ID_COLUMN].is_duplicated().any():
        raise _make_no_ids_error(rank, source)
    threads = ops.sort("external_id").group_by("tid", maintain_order=True).agg("row", "name")
    observed = nodes.group_by("thread", maintain_order=True).agg(_ID_COLUMN, "name")
    both = threads.join(observed, on="name")
    if not both.height == threads.height == observed.height == both["tid"].n_unique():
        raise _make_no_ids_error(rank, source)
    ids = ops.join(
        both.select("row", _ID_COLUMN).explode("row", _ID_COLUMN), on="row", how="left", maintain_order="left"
    )
    _check_shapes(ids, nodes, rank.source, source)
    return ids[_ID_COLUMN]


def _make_no_ids_error(rank: RankTrace, source: str) -> TraceError:
    return TraceError(messages.EXECUTION_TRACE_WITHOUT_IDS(trace=rank.source, path=source))


def _check_shapes(ops: pl.DataFrame, nodes: pl.DataFrame, trace: str, source: str) -> None:
    both = ops.join(nodes.select(_ID_COLUMN, observed="input_dims"), on=_ID_COLUMN).drop_nulls(
        ["input_dims", "observed"]
    )
    pairs = both.select("name", "input_dims", "observed").unique(maintain_order=True)
    for name, recorded, observed in pairs.iter_rows():
        if not _agree(json.loads(recorded), json.loads(observed)):
            raise TraceError(messages.EXECUTION_TRACE_SHAPES_DIFFER(path=source, trace=trace, op=name))


def _agree(recorded: list[Any], observed: list[Any]) -> bool:
    """Return whether two records of an op's shapes can be of one call; either may be incomplete."""
    pairs = zip(recorded, observed, strict=False)
    return len(recorded) == len(observed) and all(a == b or not a or not b for a, b in pairs)


def _fill_columns(ops: pl.DataFrame, nodes: pl.DataFrame) -> tuple[pl.DataFrame, int, int]:
    """Fill in the missing columns of ``ops``; also return for how many ops and collectives that was done."""
    found = ops.join(
        nodes.select(_ID_COLUMN, *FILLED_COLUMNS),
        on=_ID_COLUMN,
        how="left",
        suffix=_OBSERVED_SUFFIX,
        maintain_order="left",
    )
    with_lists = pl.when(_lacks_lists()).then(f"input_dims{_OBSERVED_SUFFIX}").otherwise(None)
    filled = found.with_columns(
        pl.coalesce(*([with_lists] if name == "input_dims" else []), name, f"{name}{_OBSERVED_SUFFIX}").alias(name)
        for name in FILLED_COLUMNS
    )
    return OPS.conform(filled), _count_changed(found, filled, "input_dims"), _count_changed(found, filled, "in_nelems")


def _count_changed(before: pl.DataFrame, after: pl.DataFrame, name: str) -> int:
    return after.filter(before[name].ne_missing(after[name])).height


def _lacks_lists() -> pl.Expr:
    """Return whether shapes within tensor lists are missing: PyTorch before 2.2 recorded none."""
    has_lists = pl.col("input_types").str.contains('"TensorList"', literal=True)
    return has_lists & ~pl.col("input_dims").str.slice(1).str.contains("[[", literal=True)
