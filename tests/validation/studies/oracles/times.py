"""Busy time and exposed communication of whole traces against TraceLens and HTA."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import tracekit as tk
from tests.validation.studies.oracles.peers import list_traces, measure_tracelens, open_tracelens, quiet, require
from tests.validation.study import REAL_TRACES, format_table
from tracekit.arrays import Ints
from tracekit.trace import Trace

INPUTS = (REAL_TRACES,)
HEADINGS = (
    "trace", "GPU busy ms", "TraceLens", "exposed communication ms", "TraceLens", "HTA on to_hta, of its own loader's",
    "where they differ",
)  # fmt: skip
NEAR_US = 0.5
"""HTA counts whole microseconds."""
SAME = "7 of 7"
JUDGED = {
    "mi300x_ddp_train_rank0_of_4": "HTA takes the GPU's marks of steps for steps, and so leaves out other kernels",
    "b200_eager_rank0_of_8": "HTA takes a Triton CPU op, which names a stream, for 74 us of GPU time",
    "h100_qwen15_05b_inference": "HTA's own assertion, of both: rounded times without compute are below 0",
}
"""Why HTA differs from itself, found by hand."""


def run() -> str:
    """Return the table.

    Raises:
        MissingInputError: A tool isn't installed.
    """
    require("TraceLens")
    require("hta")
    text = "# Times of whole traces against TraceLens and HTA\n\n"
    text += "TraceLens drops kernels without a launch in the trace. HTA's temporal breakdown (busy, idle, compute and "
    text += "non-compute time) is taken of its own loading of the file and of `to_hta`: cells that are the same.\n\n"
    return text + format_table(HEADINGS, list_rows(list_traces()))


def list_rows(paths: list[Path]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each trace."""
    for path in paths:
        trace = tk.load(path, cache=False)
        busy_us, exposed_us = measure_union(trace.ranks[0].activities)
        try:
            theirs = measure_tracelens(open_tracelens(path))
            shown = (f"{theirs['busy_time'] / 1e3:.3f}", f"{theirs['exposed_comm_time'] / 1e3:.3f}")
        except Exception as error:
            shown = (f"none ({type(error).__name__})", "")
        hta = compare_hta(trace, path)
        name = path.name.partition(".")[0]
        why = "" if hta == SAME else JUDGED.get(name, "not judged")
        yield name, f"{busy_us / 1e3:.3f}", shown[0], f"{exposed_us / 1e3:.3f}", shown[1], hta, why


def measure_union(activities: pl.DataFrame) -> tuple[float, float]:
    """Return microseconds in which a GPU works, and in which it only communicates."""
    start, end = activities["ts_ns"].to_numpy(), (activities["ts_ns"] + activities["dur_ns"]).to_numpy()
    name, is_copy = activities["name"].str, (activities["kind"] == "memcpy").to_numpy()
    communicates = name.contains("nccl").to_numpy()
    computes = ~communicates & ~is_copy
    hidden = measure_length(start[computes], end[computes])
    both = computes | communicates
    exposed = measure_length(start[both], end[both]) - hidden
    return measure_length(start, end) / 1e3, exposed / 1e3


def measure_length(start: Ints, end: Ints) -> int:
    """Return the length of the union of intervals."""
    order = np.argsort(start, kind="stable")
    first, last = start[order], np.maximum.accumulate(end[order])
    before = np.concatenate([first[:1], last[:-1]])
    return int(np.maximum(last - np.maximum(first, before), 0).sum()) if first.size else 0


def compare_hta(trace: Trace, path: Path) -> str:
    """Return how many cells of HTA's temporal breakdown are the same by both ways of loading."""
    from hta.trace_analysis import TraceAnalysis

    try:
        with quiet(), tempfile.TemporaryDirectory() as folder:
            copied = Path(folder) / path.name
            copied.write_bytes(path.read_bytes())
            theirs = break_down(TraceAnalysis(trace_files={0: str(copied)}, trace_dir=folder))
            ours = break_down(trace.to_hta())
    except Exception as error:
        return f"none ({type(error).__name__})"
    same = sum(abs(float(theirs[name]) - float(ours[name])) <= NEAR_US for name in theirs)
    return f"{same} of {len(theirs)}"


def break_down(analysis: Any) -> dict[str, float]:
    """Return the first row of HTA's temporal breakdown."""
    row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    return {str(name): float(row[name]) for name in row.index if name != "rank"}
