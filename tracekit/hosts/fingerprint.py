"""Measure how fast a trace's host is by what its ops and runtime calls take themselves."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from tracekit.arrays import NO_NUMBER, fill_nulls, find_matches
from tracekit.nested_calls import NO_CALLER, find_enclosing_calls
from tracekit.trace import RankTrace

SPAN_COLUMNS = ("ts_ns", "dur_ns", "tid", "name")


def compute_self_times(rank: RankTrace) -> pl.DataFrame:
    """Compute the self time of each op and call.

    The op that began last, one level up on the same thread, is the one that another is nested in::

        depth 1   |------------ aten::linear ------------|     10 us
        depth 2      |------- aten::addmm -------|              7 us, so linear takes 3 itself
        depth 3            | cudaLaunchKernel |                 4 us, so addmm takes 3 itself

    Returns:
        ``name`` and ``self_ns`` of each.
    """
    spans = pl.concat([rank.ops.select(SPAN_COLUMNS), rank.calls.select(SPAN_COLUMNS)])
    if spans["ts_ns"].null_count():
        spans = spans.drop_nulls("ts_ns")
    thread, start_ns, dur_ns = (fill_nulls(spans[name], NO_NUMBER) for name in ("tid", "ts_ns", "dur_ns"))
    order = np.lexsort((-dur_ns, start_ns, thread))
    outer, _ = find_enclosing_calls(thread[order], start_ns[order], (start_ns + dur_ns)[order])
    nested = outer != NO_CALLER
    self_ns = dur_ns.copy()
    np.subtract.at(self_ns, order[outer[nested]], dur_ns[order[nested]])
    return spans.select("name", self_ns=pl.Series(self_ns))


OP_TIMES = Path(__file__).with_name("op_times.csv")
"""Self times of ops on the reference host, which `python -m tests.validation.fit_hosts` fits to traces."""
TIMED_NAMES = (
    r"^(?:aten::|autograd::|torch::autograd|(?:cuda|hip|cu)(?:Module|ExtModule)?Launch|(?:cuda|hip)EventRecord|"
    r"(?:cuda|hip)StreamIsCapturing|\w+Backward\d+$)"
)
WAITING_NAMES = (
    r"^aten::(?:copy_|to|_to_copy|item|_local_scalar_dense|nonzero|is_nonzero|cpu|resize_|_?pin_memory|record_stream|"
    r"empty.*|zeros|_?embedding\w*_backward|sort|unique.*|index.*|_foreach.*|_fused.*)$"
)
"""Ops that wait for the GPU, allocate, or take a time that grows with their lists: no measure of a host."""
MIN_REPEATS = 10
"""How often an op occurs at least."""
MIN_OPS = 10
"""Distinct ops from which a host is measured: ten agree within 20 % with all others of a trace."""
MAX_RANKS = 8
"""Ranks that are looked at: they share few hosts."""
MAX_SPREAD = 0.5
"""Median deviation of the ops, as a logarithm, beyond which one factor doesn't describe the host."""


@dataclass(frozen=True, slots=True)
class HostSpeed:
    """How fast a host is.

    CPU, Python, PyTorch's version and the profiler's options have a part in it; a trace doesn't tell them apart.

    Attributes:
        speed: A multiple of the reference host's speed.
        ops: Number of distinct ops and calls that it was measured by.
        spread: Median deviation of these, as a logarithm.
    """

    speed: float
    ops: int
    spread: float


def measure_host_speed(ranks: Sequence[RankTrace]) -> HostSpeed | None:
    """Measure the speed of the host of some ranks; ``None`` where too few ops are known, or they disagree."""
    looked_at = ranks[:MAX_RANKS]
    if sum(rank.ops.height + rank.calls.height for rank in looked_at) < MIN_OPS * MIN_REPEATS:
        return None
    return compare_op_times(list_timed_spans(rank) for rank in looked_at)


def compare_op_times(spans: Iterable[pl.DataFrame]) -> HostSpeed | None:
    """Compare what ops take on some ranks' hosts with the reference host, as :func:`measure_host_speed` does.

    ``spans`` are those of each rank, from :func:`list_timed_spans`.
    """
    times = _compute_medians(spans).join(load_op_times(), on="name")
    logs = (times["self_ns"] / times["reference_ns"]).log()
    if logs.len() < MIN_OPS:
        return None
    slowness = float(logs.median())  # type: ignore[arg-type]
    spread = float((logs - slowness).abs().median())  # type: ignore[arg-type]
    return None if spread > MAX_SPREAD else HostSpeed(math.exp(-slowness), logs.len(), spread)


def list_op_times(ranks: Sequence[RankTrace]) -> pl.DataFrame:
    """Return the median ``self_ns`` by ``name`` of what tells a host's speed."""
    return _compute_medians(list_timed_spans(rank) for rank in ranks[:MAX_RANKS])


def list_timed_spans(rank: RankTrace) -> pl.DataFrame:
    """Return ``name`` and ``self_ns`` of each op and call that tells a host's speed."""
    times = compute_self_times(rank)
    timed = find_matches(times["name"], TIMED_NAMES)
    wanted = timed[(times["self_ns"].to_numpy() > 0)[timed]]
    return times[wanted].filter(~pl.col("name").str.contains(WAITING_NAMES))


def _compute_medians(spans: Iterable[pl.DataFrame]) -> pl.DataFrame:
    times = pl.concat(spans)
    counted = times.group_by("name").agg(pl.col("self_ns").median(), count=pl.len())
    return counted.filter(pl.col("count") >= MIN_REPEATS).select("name", "self_ns").sort("name")


@cache
def load_op_times() -> pl.DataFrame:
    """Load ``name`` and ``reference_ns`` of the reference host."""
    return pl.read_csv(OP_TIMES, schema_overrides={"reference_ns": pl.Float64})
