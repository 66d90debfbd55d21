"""An execution trace (Chakra, PyTorch's ExecutionTraceObserver) joined to the profiler trace of the same run.

It holds what the profiler may not have been asked for: shapes and types of every op, and the sizes of collectives.
"""

import json
import re
from dataclasses import replace
from typing import Any

import polars as pl

from tracekit.errors import TraceError
from tracekit.ingest.execution_nodes import ExecutionTrace, read
from tracekit.schema import COLLECTIVE, OPS, SIGNATURE
from tracekit.trace import RankTrace

FILLED = tuple(column.name for column in (*SIGNATURE, *COLLECTIVE))
HINT = "Give the execution trace that was recorded together with this trace, of the same rank."

_HEAD = re.compile(rb'^\s*\{\s*"schema"\s*:\s*"\d+\.\d+\.\d+[^"]*"\s*,\s*"(?:pid|time|start_ts|nodes)"\s*:')
_NO_SHAPES = "shapes were not recorded"
_LEAST_AGREEMENT = 0.99
_ID = "record_function_id"
_NEW = "_observed"


def is_execution_trace(head: bytes) -> bool:
    """Whether a file that begins like this is an execution trace."""
    return _HEAD.match(head) is not None


def join(rank: RankTrace, execution_trace: bytes, source: str) -> RankTrace:
    """``rank`` with the shapes, types and collective sizes that it lacks and its execution trace has.

    Ops are joined by their record function id. PyTorch before 2.3 doesn't write it into the trace; then the ops of
    every thread must be the same ones in the same order, with the same shapes, or nothing is joined.

    Args:
        rank: A trace as it was read.
        execution_trace: The execution trace's JSON text.
        source: What to call it in messages.

    Raises:
        DamagedTraceError: It is no valid JSON.
        NotATraceError: It is JSON of another kind.
        TraceError: It is of another rank or run, or there is nothing to join by.
    """
    other = read(execution_trace, source)
    _check_process(rank, other, source)
    ids = rank.ops[_ID].replace(0, None)
    if ids.count():
        nodes = _by_id(rank.ops.select(ids, "name"), other.nodes, rank.source, source)
    else:
        ids, nodes = _in_order(rank, other.nodes, source), other.nodes
    ops, shapes, sizes = _fill(rank.ops.with_columns(ids), nodes)
    done = f"shapes of {shapes:,} ops and sizes of {sizes:,} collectives were filled in from {source}"
    still = (text for text in rank.warnings if not (shapes and text.startswith(_NO_SHAPES)))
    return replace(rank, ops=ops, warnings=(*still, done))


def _check_process(rank: RankTrace, other: ExecutionTrace, source: str) -> None:
    if rank.ops.is_empty():
        raise TraceError(
            f"{rank.source} holds no CPU ops that {source} could be joined to.",
            "Record it with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
        )
    known = rank.ops["pid"].drop_nulls().unique().sort().to_list()
    if other.pid is not None and known and other.pid not in known:
        processes = ", ".join(map(str, known[:3]))
        raise TraceError(f"{source} is of process {other.pid}, {rank.source} of process {processes}.", HINT)


def _by_id(ops: pl.DataFrame, nodes: pl.DataFrame, trace: str, source: str) -> pl.DataFrame:
    """Those of ``nodes`` that are ops of the trace: the same id, handed out once, and the same name."""
    nodes = nodes.unique(_ID, keep="none", maintain_order=True)
    common = nodes.join(ops.select(_ID, op="name").unique(_ID, keep="none"), on=_ID, maintain_order="left")
    if common.is_empty():
        raise TraceError(f"None of the record function ids of {trace} is in {source}.", HINT)
    same = common.filter(pl.col("name") == pl.col("op"))
    if same.height < _LEAST_AGREEMENT * common.height:
        raise TraceError(
            f"{source} is of another run than {trace}: {common.height - same.height:,} of {common.height:,} record "
            "function ids belong to ops of another name.",
            HINT,
        )
    return same.drop("op")


def _in_order(rank: RankTrace, nodes: pl.DataFrame, source: str) -> pl.Series:
    """The id of each op, where the ops are exactly the nodes, thread by thread."""
    ops = rank.ops.select("tid", "name", "external_id", "input_dims").with_row_index("row")
    if ops["external_id"].null_count() or not ops["input_dims"].count() or nodes[_ID].is_duplicated().any():
        raise _no_ids(rank, source)
    threads = ops.sort("external_id").group_by("tid", maintain_order=True).agg("row", "name")
    observed = nodes.group_by("thread", maintain_order=True).agg(_ID, "name")
    both = threads.join(observed, on="name")
    if not both.height == threads.height == observed.height == both["tid"].n_unique():
        raise _no_ids(rank, source)
    ids = ops.join(both.select("row", _ID).explode("row", _ID), on="row", how="left", maintain_order="left")
    _check_shapes(ids, nodes, rank.source, source)
    return ids[_ID]


def _no_ids(rank: RankTrace, source: str) -> TraceError:
    return TraceError(
        f"{rank.source} has no record function ids, and its ops aren't exactly those of {source}.",
        "Record both anew with PyTorch 2.3 or newer, with the ExecutionTraceObserver given to the profiler.",
    )


def _check_shapes(ops: pl.DataFrame, nodes: pl.DataFrame, trace: str, source: str) -> None:
    both = ops.join(nodes.select(_ID, observed="input_dims"), on=_ID).drop_nulls(["input_dims", "observed"])
    pairs = both.select("name", "input_dims", "observed").unique(maintain_order=True)
    for name, recorded, observed in pairs.iter_rows():
        if not _agree(json.loads(recorded), json.loads(observed)):
            raise TraceError(f"{source} is of another run than {trace}: its {name} has other shapes.", HINT)


def _agree(recorded: list[Any], observed: list[Any]) -> bool:
    """Whether two notes of an op's shapes can be of one call; neither need hold all of them."""
    pairs = zip(recorded, observed, strict=False)
    return len(recorded) == len(observed) and all(a == b or not a or not b for a, b in pairs)


def _fill(ops: pl.DataFrame, nodes: pl.DataFrame) -> tuple[pl.DataFrame, int, int]:
    """``ops`` with what they lack filled in, and for how many ops and collectives that was so."""
    found = ops.join(nodes.select(_ID, *FILLED), on=_ID, how="left", suffix=_NEW, maintain_order="left")
    with_lists = pl.when(_lacks_lists()).then(f"input_dims{_NEW}").otherwise(None)
    filled = found.with_columns(
        pl.coalesce(*([with_lists] if name == "input_dims" else []), name, f"{name}{_NEW}").alias(name)
        for name in FILLED
    )
    return OPS.conform(filled), _changed(found, filled, "input_dims"), _changed(found, filled, "in_nelems")


def _changed(before: pl.DataFrame, after: pl.DataFrame, name: str) -> int:
    return after.filter(before[name].ne_missing(after[name])).height


def _lacks_lists() -> pl.Expr:
    """Whether the shapes in a list of tensors are missing: PyTorch before 2.2 noted none."""
    has_lists = pl.col("input_types").str.contains('"TensorList"', literal=True)
    return has_lists & ~pl.col("input_dims").str.slice(1).str.contains("[[", literal=True)
