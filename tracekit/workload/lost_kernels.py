"""Count kernel launches whose kernels the profiler lost."""

import numpy as np
import polars as pl

from tracekit.arrays import find_nulls, select_table
from tracekit.ingest.cuda_graph_captures import GRAPH_LAUNCH_CALLS
from tracekit.messages.traces import FORMAT_LACKS
from tracekit.trace import RankTrace

# Calls that launch a kernel, to find launches without one. Launches and kernels are otherwise linked by correlation ID.
KERNEL_LAUNCH_PATTERN = r"^((cuda|cu|hip)\w*Launch\w*Kernel|(cuda|cu|hip)GraphLaunch)"
NSIGHT_TOOL = "Nsight Systems"
CAPTURE_CALL_PATTERN = r"StreamBeginCapture|StreamEndCapture"


def count_lost_launches(rank: RankTrace) -> tuple[int, int]:
    """Return the number of launches without a kernel in the trace, and the number of all launches.

    Launches into a graph that is being captured start no kernel and don't count.
    """
    launching = _find_launches(rank)
    ran = np.isin(launching["correlation"].to_numpy(), rank.activities["correlation"].to_numpy())
    return int((~ran).sum()), launching.height


def lacks_graphs(rank: RankTrace) -> bool:
    """Return whether Nsight Systems recorded nothing of what CUDA graphs ran, and lost no other kernels."""
    tool = next((one.values["tool"] for one in rank.warnings if one.template is FORMAT_LACKS), None)
    if tool != NSIGHT_TOOL:
        return False
    launching = _find_launches(rank).with_columns(of_graph=pl.col("name").str.contains(GRAPH_LAUNCH_CALLS))
    lost = launching.join(rank.activities, on="correlation", how="anti")
    return lost.height > 0 and bool(lost["of_graph"].all()) and lost.height == launching["of_graph"].sum()


def _find_launches(rank: RankTrace) -> pl.DataFrame:
    launches = rank.calls[rank.find_named("calls", KERNEL_LAUNCH_PATTERN)]
    launches = select_table(launches, ~find_nulls(launches["correlation"]))
    capture = rank.calls[rank.find_named("calls", CAPTURE_CALL_PATTERN)]
    if capture.is_empty():
        return launches
    begins = capture.select("ts_ns", capturing=pl.col("name").str.contains("Begin"))
    found = launches.join_asof(begins, on="ts_ns", check_sortedness=False)
    return found.filter(~pl.col("capturing").fill_null(False))
