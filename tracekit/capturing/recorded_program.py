"""Read the program of a recording without GPU activity, such as of a run on a CPU."""

import json
from dataclasses import replace
from typing import Any

import polars as pl

from tracekit.capturing.op_profile import OpProfile
from tracekit.capturing.program import CapturedProgram
from tracekit.capturing.recorded_calls import THREAD, RecordedCalls, find_calls
from tracekit.models.captured import CaptureFacts
from tracekit.trace import RankTrace
from tracekit.workload.parameters import ACCUMULATE_GRAD_OP

COLLECTIVE = "record_param_comms"
"""The op that PyTorch notes once for each."""
MARK_GAP_US = 1e-4
"""Between the calls of one op, whose order alone counts."""


def read_program(rank: RankTrace) -> CapturedProgram | None:
    """Read the program of a recording without GPU activity; None where nothing would launch a kernel.

    Args:
        rank: The recording, with shapes.

    Raises:
        CaptureError: Its layers are recurrent, or the values of its ops' inputs weren't recorded.
    """
    return build_program(rank, find_calls(rank))


def build_program(rank: RankTrace, found: RecordedCalls) -> CapturedProgram | None:
    """Build the program of a recording from its calls; None where there are none."""
    begin_ns = rank.ops["ts_ns"].min()
    calls = tuple(call for several in found.calls for call in several)
    if not calls:
        return None
    # From the first op on, floating-point numbers hold the times exactly.
    middle_us = ((found.ops["ts_ns"] - begin_ns + found.ops["dur_ns"] // 2) / 1e3).to_list()
    marks_us = [
        us + place * MARK_GAP_US
        for us, several in zip(middle_us, found.calls, strict=True)
        for place in range(len(several))
    ]
    profile = OpProfile(
        _list_events(_begin_at_zero(rank), found.ops.with_columns(pl.col("ts_ns") - begin_ns)),
        marks_us,
        [-1] * len(calls),
    )
    return CapturedProgram(rank.source, calls, profile, _find_facts(rank))


def _begin_at_zero(rank: RankTrace) -> RankTrace:
    """Return the recording with times from its first op on."""
    begin = pl.col("ts_ns") - rank.ops["ts_ns"].min()
    tables = (rank.ops, rank.annotations, rank.frames)
    ops, annotations, frames = (table.with_columns(begin) for table in tables)
    return replace(rank, ops=ops, annotations=annotations, frames=frames)


def _list_events(rank: RankTrace, calls: pl.DataFrame) -> list[dict[str, Any]]:
    """List the ops and annotations as the profiler's events, without what the CPU does inside calls."""
    ops = rank.ops.with_row_index("op_row").sort("ts_ns")
    spans = calls.select(*THREAD, "ts_ns", end_ns=pl.col("ts_ns") + pl.col("dur_ns")).sort("ts_ns")
    joined = ops.join_asof(spans, on="ts_ns", by=list(THREAD), check_sortedness=False)
    # The calls themselves are added with their kernels.
    inside = (pl.col("ts_ns") < pl.col("end_ns")) & (pl.col("ts_ns") + pl.col("dur_ns") <= pl.col("end_ns"))
    outer = joined.filter(~inside.fill_null(value=False))
    named = [(outer, "cpu_op"), (rank.annotations, "user_annotation"), (rank.frames, "python_function")]
    events = [_make_event(row, kind) for table, kind in named for row in table.iter_rows(named=True)]
    return sorted(events, key=lambda event: (event["ts"], -event["dur"]))


def _make_event(row: dict[str, Any], kind: str) -> dict[str, Any]:
    noted = {"Input Dims": "input_dims", "Input type": "input_types", "Concrete Inputs": "concrete_inputs"}
    args = {name: json.loads(row[column]) for name, column in noted.items() if row.get(column)}
    return {"cat": kind, "name": row["name"], "ts": row["ts_ns"] / 1e3, "dur": row["dur_ns"] / 1e3, "args": args}


def _find_facts(rank: RankTrace) -> CaptureFacts:
    """Find what the ops tell of the program: whether it has gradients. What memory holds, they don't tell."""
    gradients = rank.ops.filter((pl.col("name") == ACCUMULATE_GRAD_OP) & pl.col("input_dims").is_not_null())
    return CaptureFacts(
        gpu="",
        parameters=0,
        parameter_bytes=0,
        held_bytes=0,
        peak_bytes=0,
        trains=not gradients.is_empty(),
        collectives=int((rank.ops["name"] == COLLECTIVE).sum()),
    )
