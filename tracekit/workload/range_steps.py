"""Steps that are told by named ranges which repeat evenly: the user's own, NVTX's, roctx's."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.ingest.nesting import select_outermost
from tracekit.ingest.worker_calls import WORKER_CALL
from tracekit.rules import Rule, RuleNames
from tracekit.trace import RankTrace
from tracekit.workload import setup_ranges
from tracekit.workload.launched_work import LaunchedWork

RULE = Rule(
    "repeated-range-steps",
    "Without other marks, ranges of one name that repeat with about the same GPU work are the steps.",
    "torchao's ViT (A100), `timed region` five times, each one graph: one step of 8.37 ms without the rule.",
)
_AUTOMATIC_NAME = (
    r"^(?:Optimizer\.|ProfilerStep|PyTorch Profiler|nccl:|gloo:|mpi:|ucc:|record_param_comms|enumerate\(|"
    r"Torch-Compiled Region|## |CompiledFunction|FSDP::|autograd::)"
)
"""Ranges that PyTorch opens itself, within a step."""


def _match_words(words: str) -> str:
    return rf"(?i)(?:^|[^a-z])(?:{words})(?:$|[^a-z])"


_PART_NAME = _match_words(
    "layers?|blocks?|attn|attention|mlp|ffn|norm|heads?|experts?|moe|conv|linear|embed(?:ding)?s?|softmax|logits|"
    "matmul|gemm|encoders?|decoders?|micro[ _-]?batch(?:es)?|micro[ _-]?steps?|bucket|chunks?|stage|module"
)
"""Names of parts of a step, which repeat within it."""
_OPEN_NAME = _match_words("loop|bench(?:mark)?|test|measured?|timed|timing|run|epoch|profil(?:e|ed|er|ing)")
"""Names of what encloses several steps."""
_STEP_NAME = _match_words(
    "forward|step|iter(?:ation)?|batch|infer(?:ence)?|predict|generate|decode|prefill|request|sample"
)
"""Names of one step, or of a part of it that runs once."""
MIN_COVERED_FRACTION = 0.9
"""Least part of the work between the first and the last range that the ranges must hold."""
MIN_TRACE_FRACTION = 0.25
"""Least part of the trace's work between them: iterations without ranges may come first."""
MAX_WORK_RATIO = 2.0
"""By how much the work of a step may differ from the median step's."""
MAX_GROUPS = 64
"""Names that are looked at, those with most work."""


class _Group(NamedTuple):
    """Ranges of one name on one thread, in order: begins, ends and their work."""

    name: str
    pid: int | None
    tid: int | None
    start_ns: Ints
    end_ns: Ints


def find_range_steps(trace: RankTrace, without: RuleNames) -> pl.DataFrame:
    """Find the outermost ranges that repeat with about the same work, and together hold nearly all of it.

    Ranges that take turns, such as forward and backward, make a step together::

        |forward||backward|   |forward||backward|   |forward||backward|
        |     step 0      |   |     step 1      |   |     step 2      |

    Returns:
        ``start_ns``, ``end_ns``, ``pid``, ``tid`` and ``found_name``; no row if there are none.
    """
    work = LaunchedWork.from_trace(trace)
    groups = list(_list_groups(trace, work)) if work.total_ns else []
    left_ns = work.total_ns - _measure_setup(trace, work, without)
    for group, others in _list_candidates(groups):
        cycles = _join_cycles(group, others)
        found = _choose_edges(group, cycles, work, trace, left_ns)
        if found is not None:
            start_ns, end_ns = found
            return pl.DataFrame({"start_ns": start_ns, "end_ns": end_ns}).with_columns(
                pid=pl.lit(group.pid, pl.Int64), tid=pl.lit(group.tid, pl.Int64), found_name=pl.lit(group.name)
            )
    return NO_STEPS


NO_STEPS = pl.DataFrame(
    schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "pid": pl.Int64, "tid": pl.Int64, "found_name": pl.String}
)


def _list_groups(trace: RankTrace, work: LaunchedWork) -> Iterator[_Group]:
    """List the ranges that repeat and launch something, by name and thread; digits of a name count as equal."""
    name = pl.col("name").str
    wrong = name.contains(f"{_AUTOMATIC_NAME}|{WORKER_CALL}") | name.contains(_PART_NAME) | setup_ranges.is_setup()
    ranges = trace.annotations.filter(pl.col("dur_ns") > 0, ~wrong).with_columns(
        key=name.replace_all(r"\d+", "#"), end_ns=pl.col("ts_ns") + pl.col("dur_ns")
    )
    ranges = select_outermost(ranges, "key", "pid", "tid")
    launched = work.measure(ranges["ts_ns"].to_numpy(), ranges["end_ns"].to_numpy())
    key = ("key", "pid", "tid")
    repeated = (
        ranges.with_columns(work=pl.Series(launched, dtype=pl.Int64))
        .filter(pl.len().over(key) > 1, pl.col("work").sum().over(key) > 0)
        .with_columns(total=pl.col("work").sum().over(key))
    )
    most = repeated.unique(key).sort("total", "ts_ns", descending=[True, False]).head(MAX_GROUPS)
    enclosing = _list_single_steps(trace)
    for row in most.select(*key).iter_rows():
        own = repeated.filter(pl.all_horizontal(pl.col(k).eq_missing(pl.lit(v)) for k, v in zip(key, row, strict=True)))
        start, end = own["ts_ns"].to_numpy(), own["end_ns"].to_numpy()
        if not enclosing.filter(pl.col("ts_ns") <= start[0], pl.col("end_ns") >= end[-1]).height:
            yield _Group(own["name"][0] if own["name"].n_unique() == 1 else row[0], row[1], row[2], start, end)


def _list_single_steps(trace: RankTrace) -> pl.DataFrame:
    """List the ranges that are a step by their name, in which parts may repeat."""
    name = pl.col("name").str
    is_step = name.contains(_STEP_NAME) & ~name.contains(_OPEN_NAME)
    return trace.annotations.filter(is_step).select("ts_ns", end_ns=pl.col("ts_ns") + pl.col("dur_ns"))


def _list_candidates(groups: list[_Group]) -> Iterator[tuple[_Group, list[_Group]]]:
    """List the groups, fewest ranges first and of these those with most work; what encloses steps comes last."""
    is_open = pl.Series([one.name for one in groups], dtype=pl.String).str.contains(_OPEN_NAME).to_list()
    order = sorted(range(len(groups)), key=lambda place: (is_open[place], groups[place].start_ns.size, place))
    for place in order:
        size = groups[place].start_ns.size
        yield groups[place], [one for one in groups if one is not groups[place] and one.start_ns.size == size]


def _join_cycles(group: _Group, others: list[_Group]) -> tuple[Ints, Ints]:
    """Join ranges of others that repeat as often, where they take turns with the group's."""
    start, end = group.start_ns, group.end_ns
    for other in others:
        first, last = np.minimum(start, other.start_ns), np.maximum(end, other.end_ns)
        if (last[:-1] <= first[1:]).all():
            start, end = first, last
    return start, end


def _choose_edges(
    group: _Group, cycles: tuple[Ints, Ints], work: LaunchedWork, trace: RankTrace, left_ns: int
) -> tuple[Ints, Ints] | None:
    """Return begins and ends of the steps: the ranges, or from one to the next if a named part of a step is marked."""
    start, end = cycles
    if (end[:-1] > start[1:]).any():
        return None
    launched = work.measure(start, end)
    window = int(work.measure(start[:1], end[-1:])[0])
    if launched.sum() >= MIN_COVERED_FRACTION * window and window >= MIN_TRACE_FRACTION * left_ns:
        return (start, end) if _is_even(launched[launched > 0]) else None
    if not pl.Series([group.name]).str.contains(_STEP_NAME).item():
        return None
    until = np.append(start[1:], int((trace.calls["ts_ns"] + trace.calls["dur_ns"]).to_numpy().max()) + 1)
    launched = work.measure(start, until)
    if launched.sum() < MIN_COVERED_FRACTION * left_ns or not _is_even(launched):
        return None
    return start, until


def _is_even(work_ns: Ints) -> bool:
    """Return whether steps have about the same work; the first of three or more may be a warm-up."""
    rest = work_ns[1:] if work_ns.size > 2 else work_ns
    middle = float(np.median(rest)) if rest.size else 0.0
    return rest.size + (work_ns.size > 2) > 1 and bool(
        middle > 0 and rest.max() <= MAX_WORK_RATIO * middle and rest.min() * MAX_WORK_RATIO >= middle
    )


def _measure_setup(trace: RankTrace, work: LaunchedWork, without: RuleNames) -> int:
    """Measure the work of the ranges that prepare the run."""
    if not setup_ranges.RULE.is_on(without):
        return 0
    found = select_outermost(setup_ranges.find_setup_ranges(trace))
    return int(work.measure(found["ts_ns"].to_numpy(), (found["ts_ns"] + found["dur_ns"]).to_numpy()).sum())
