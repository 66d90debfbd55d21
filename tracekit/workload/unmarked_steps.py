"""Infer the steps of a trace in which neither the profiler nor a serving engine nor an optimizer marks any."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.ingest.batches import select_outermost
from tracekit.ingest.fields import WORKER_CALL
from tracekit.messages import traces as messages
from tracekit.rules import Rule, RuleNames
from tracekit.trace import RankTrace
from tracekit.workload.owners import LaunchedWork

NO_STEPS = pl.DataFrame(
    schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "pid": pl.Int64, "tid": pl.Int64, "found_name": pl.String}
)

WORKER_STEPS_RULE = Rule(
    "worker-call-steps",
    "Without marks of batches, each call of a serving engine's worker, such as execute_model, is a step.",
    "vLLM of 2025 on an MI300X and an H100, which marked no batches: a prefill and nine decodes counted as one step.",
)


def find_worker_steps(trace: RankTrace) -> pl.DataFrame:
    """Find the outermost calls of the worker on the thread that launches most, each up to the start of the next.

    Returns:
        ``start_ns``, ``end_ns``, ``pid``, ``tid`` and ``found_name``; no row if there are none.
    """
    calls = trace.annotations.filter(pl.col("name").str.contains(WORKER_CALL))
    found = select_outermost(calls, "pid", "tid").with_columns(end_ns=pl.col("ts_ns") + pl.col("dur_ns"))
    threads = found.join(_count_launches(trace), on=("pid", "tid"), how="left", nulls_equal=True)
    per_thread = threads.group_by("pid", "tid").agg(pl.col("launches").first().fill_null(0), pl.len())
    main = per_thread.sort("launches", "len", "tid", descending=[True, True, False]).head(1)
    own = found.join(main, on=("pid", "tid"), how="semi", nulls_equal=True).sort("ts_ns")
    until = pl.col("ts_ns").shift(-1).fill_null(pl.col("end_ns"))
    return own.select(
        start_ns="ts_ns", end_ns=until, pid="pid", tid="tid", found_name=pl.col("name").mode().sort().first()
    )


def _count_launches(trace: RankTrace) -> pl.DataFrame:
    """Count the activities that each thread launched."""
    call = trace.launches.call.drop_nulls()
    return trace.calls.select("pid", "tid")[call].group_by("pid", "tid").agg(launches=pl.len())


def _match_words(words: str) -> str:
    return rf"(?i)(?:^|[^a-z])(?:{words})(?:$|[^a-z])"


SETUP_RANGES_RULE = Rule(
    "setup-ranges",
    "Ranges named init, load or warm-up are no steps, and what marks no steps begins behind them.",
    "nsys of a course's 2.7B transformer (A100): ranges init_model, warmup and benchmark_loop, 38.1 s without the "
    "rule, of which 2.5 s are measured.",
)
"""The step behind them::

    |init_model|  |load_weights|  |warmup|  |benchmark_loop|
                                            ^ the step
"""
_WARM_UP = r"warm(?:ing)?[ _-]?up"
SETUP_NAME = _match_words(rf"__init__|init|initiali[sz](?:e|ing|ation)|load|loading|set[ _-]?up|{_WARM_UP}")
_NO_SETUP_NAME = r"(?i)load[ _-]?balanc"
MIN_MEASURED_FRACTION = 0.9
"""Least part of the work behind the preparation that a single range must hold to be the step."""

MIN_REST_FRACTION = 0.1
"""Least part of the work outside of the preparation that the stretch must hold: what follows may clean up."""


class MeasuredStretch(NamedTuple):
    """What of a trace isn't preparation.

    Attributes:
        start_ns: Its begin on the host.
        left_out: Names of the ranges before and after it.
        name: The range that it is; ``None`` if no range holds nearly all of its work.
    """

    start_ns: int
    end_ns: int
    left_out: tuple[str, ...]
    name: str | None


def is_setup() -> pl.Expr:
    """Return whether the name of a range says that it prepares a run."""
    name = pl.col("name").str
    return name.contains(SETUP_NAME) & ~name.contains(_NO_SETUP_NAME)


def find_setup_ranges(trace: RankTrace) -> pl.DataFrame:
    """Find the ranges that prepare a run: they lie in no other, and only warm-ups may repeat."""
    outermost = select_outermost(trace.annotations.filter(pl.col("dur_ns") > 0), "pid", "tid").filter(is_setup())
    return outermost.filter((pl.len().over("name") == 1) | pl.col("name").str.contains(rf"(?i){_WARM_UP}"))


def find_measured_stretch(trace: RankTrace, without: RuleNames) -> MeasuredStretch | None:
    """Find what follows the ranges of preparation; ``None`` without such ranges.

    It is the last stretch behind one of them, or before the first, that launches more than little GPU work.
    """
    if not SETUP_RANGES_RULE.is_on(without):
        return None
    setup = find_setup_ranges(trace)
    work = LaunchedWork.from_trace(trace)
    if setup.is_empty() or not work.total_ns:
        return None
    starts, ends = _list_stretches(setup, trace)
    launched = work.measure(starts, ends)
    last = int(np.flatnonzero(launched >= MIN_REST_FRACTION * launched.sum())[-1])
    if not launched[last]:
        return None
    start, end = int(starts[last]), int(ends[last])
    name = None
    ranges = trace.annotations.filter(pl.col("ts_ns") >= start, pl.col("ts_ns") + pl.col("dur_ns") <= end, ~is_setup())
    ranges = ranges.with_columns(end_ns=pl.col("ts_ns") + pl.col("dur_ns"))
    within = work.measure(ranges["ts_ns"].to_numpy(), ranges["end_ns"].to_numpy())
    holding = ranges.filter(pl.Series(within >= MIN_MEASURED_FRACTION * launched[last], dtype=pl.Boolean))
    if holding.height:
        start, end, name = holding.sort("dur_ns").select("ts_ns", "end_ns", "name").row(-1)
    return MeasuredStretch(start, end, tuple(setup["name"].unique(maintain_order=True)), name)


def _list_stretches(setup: pl.DataFrame, trace: RankTrace) -> tuple[Ints, Ints]:
    """List begin and end of what lies between the ranges, before the first and after the last."""
    tables = (trace.ops, trace.calls, trace.annotations)
    spans = pl.concat(table.select("ts_ns", end_ns=pl.col("ts_ns") + pl.col("dur_ns")) for table in tables)
    begins, ends = setup["ts_ns"].to_numpy(), (setup["ts_ns"] + setup["dur_ns"]).cum_max().to_numpy()
    starts = np.concatenate([[spans["ts_ns"].to_numpy().min()], ends])
    stops = np.concatenate([begins, [spans["end_ns"].to_numpy().max() + 1]])
    return starts, np.maximum(stops, starts)


RANGE_STEPS_RULE = Rule(
    "repeated-range-steps",
    "Without other marks, ranges of one name that repeat with about the same GPU work are the steps.",
    "torchao's ViT (A100), `timed region` five times, each one graph: one step of 8.37 ms without the rule.",
)
_AUTOMATIC_NAME = (
    r"^(?:Optimizer\.|ProfilerStep|PyTorch Profiler|nccl:|gloo:|mpi:|ucc:|record_param_comms|enumerate\(|"
    r"Torch-Compiled Region|## |CompiledFunction|FSDP::|autograd::)"
)
"""Ranges that PyTorch opens itself, within a step."""
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
    """Ranges of one name on one thread, in order."""

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


def _list_groups(trace: RankTrace, work: LaunchedWork) -> Iterator[_Group]:
    """List the ranges that repeat and launch something, by name and thread; digits of a name count as equal."""
    name = pl.col("name").str
    wrong = name.contains(f"{_AUTOMATIC_NAME}|{WORKER_CALL}") | name.contains(_PART_NAME) | is_setup()
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
    if not SETUP_RANGES_RULE.is_on(without):
        return 0
    found = select_outermost(find_setup_ranges(trace))
    return int(work.measure(found["ts_ns"].to_numpy(), (found["ts_ns"] + found["dur_ns"]).to_numpy()).sum())


GRAPH_STEPS_RULE = Rule(
    "graph-launch-steps",
    "Without other marks, launches of graphs that repeat in the same order are the steps.",
    "vLLM of 2025 on an H100, whose nine decodes are 81 graph launches each: one step of 359 ms without the rule.",
)
GRAPH_LAUNCH = "GraphLaunch"
MAX_ROUNDS_RATIO = 1.5
"""By how much the work of a round may differ from the median round's."""
MIN_EVEN_FRACTION = 0.8
"""Least part of the rounds that must be so."""
MIN_ROUNDS_FRACTION = 0.5
"""Least part of the trace's work that the rounds must hold."""


def find_graph_steps(trace: RankTrace) -> pl.DataFrame:
    """Find the rounds of graph launches, each from its first launch to that of the next.

    A round begins where the host waits longest between launches. Where rounds of several kinds follow each other, as
    with batches of two sizes, it begins at a graph that follows others than always the same one::

        a b c   a b c   a b c   d e f   d e f
        ^       ^       ^       ^       ^

    Returns:
        ``start_ns``, ``end_ns``, ``pid``, ``tid`` and ``found_name`` (launches in a round); no row if there are none.
    """
    launches = _list_launches(trace)
    starts, ends = _find_rounds(launches)
    if starts.size < 2:
        return NO_STEPS
    start_ns, end_ns = _close_rounds(launches["ts_ns"].to_numpy(), starts, ends, trace)
    work = LaunchedWork.from_trace(trace)
    launched = work.measure(start_ns, end_ns)
    if launched.sum() < MIN_ROUNDS_FRACTION * work.total_ns or not _is_nearly_even(launched):
        return NO_STEPS
    size = int(np.median(ends - starts))
    return pl.DataFrame({"start_ns": start_ns, "end_ns": end_ns}).hstack(
        launches.select("pid", "tid", found_name=pl.lit(str(size)))[starts]
    )


def _list_launches(trace: RankTrace) -> pl.DataFrame:
    """List the launches of graphs in order, with a number for each graph: that of its nodes, else of its kernels."""
    calls = trace.calls.filter(pl.col("name").str.contains(GRAPH_LAUNCH)).drop_nulls("correlation")
    kernels = trace.activities.join(calls.select("correlation"), on="correlation", how="semi")
    nodes = pl.col("graph_node_id").min()
    names = pl.concat_str(pl.len(), pl.col("name").hash().sum(), separator=" ")
    graphs = kernels.group_by("correlation").agg(
        key=pl.when(pl.col("graph_node_id").null_count() == 0).then(nodes.cast(pl.String)).otherwise(names)
    )
    return (
        calls.sort("ts_ns")
        .join(graphs, on="correlation", maintain_order="left")
        .with_columns(graph=pl.col("key").rank("dense").cast(pl.Int64))
    )


def _find_rounds(launches: pl.DataFrame) -> tuple[Ints, Ints]:
    """Find the first launch of each whole round, and the first behind it."""
    graphs = launches["graph"].to_numpy()
    if graphs.size < 2:
        return graphs, graphs
    period = _find_period(graphs)
    if period is not None:
        starts = np.arange(_find_phase(launches, period), graphs.size, period)
        whole = starts + period <= graphs.size
        return starts[whole], starts[whole] + period
    starts = np.flatnonzero(np.isin(graphs, _find_heads(graphs)))
    ends = np.append(starts[1:], graphs.size)
    if starts.size < 2:
        return starts, ends
    usual = np.bincount(graphs[starts], weights=ends - starts) / np.maximum(np.bincount(graphs[starts]), 1)
    whole = ends - starts >= usual[graphs[starts]]
    whole[:-1] = True
    return starts[whole], ends[whole]


def _find_period(graphs: Ints) -> int | None:
    """Find after how many launches the sequence of graphs repeats; ``None`` if it doesn't."""
    numbers, counts = np.unique(graphs, return_counts=True)
    repeated = counts > 1
    if not repeated.any():
        return None
    rarest = numbers[repeated][np.argmin(counts[repeated])]
    places = np.flatnonzero(graphs == rarest)
    for period in (places[1:] - places[0]).tolist():
        if 2 * period <= graphs.size and (graphs[period:] == graphs[:-period]).all():
            return int(period)
    return None


def _find_heads(graphs: Ints) -> Ints:
    """Find the graphs that don't always follow one other graph."""
    follows = pl.DataFrame({"graph": graphs, "before": np.concatenate([[-1], graphs[:-1]])})
    before = follows.group_by("graph").agg(pl.col("before").n_unique())
    return before.filter(pl.col("before") > 1)["graph"].to_numpy()


def _find_phase(launches: pl.DataFrame, period: int) -> int:
    """Find which launch of a period comes after the longest wait."""
    ended = (pl.col("ts_ns") + pl.col("dur_ns")).shift(1)
    waits = launches.select(waited=pl.col("ts_ns") - ended, phase=pl.int_range(pl.len()) % period)
    phases = waits.group_by("phase").agg(pl.col("waited").median()).sort("waited", "phase", descending=[True, False])
    return int(phases["phase"][0])


def _close_rounds(at_ns: Ints, starts: Ints, ends: Ints, trace: RankTrace) -> tuple[Ints, Ints]:
    """Return begin and end of each round; the last one lasts as long as others, or until the trace ends."""
    start_ns = at_ns[starts]
    if ends[-1] < at_ns.size:
        return start_ns, np.append(start_ns[1:], at_ns[ends[-1]])
    last_call = int((trace.calls["ts_ns"] + trace.calls["dur_ns"]).to_numpy().max())
    usual = start_ns[-1] + int(np.median(np.diff(start_ns)))
    return start_ns, np.append(start_ns[1:], min(max(usual, at_ns[-1]), last_call) + 1)


def _is_nearly_even(work_ns: Ints) -> bool:
    """Return whether nearly all rounds have about the same work."""
    middle = float(np.median(work_ns))
    near = (work_ns <= MAX_ROUNDS_RATIO * middle) & (work_ns * MAX_WORK_RATIO >= middle)
    return middle > 0 and float(near.mean()) >= MIN_EVEN_FRACTION


RULES: tuple[Rule, ...] = (WORKER_STEPS_RULE, RANGE_STEPS_RULE, GRAPH_STEPS_RULE, SETUP_RANGES_RULE)


def infer_steps(trace: RankTrace, without: RuleNames) -> pl.DataFrame:
    """Infer steps from calls of a serving engine's worker, else named ranges that repeat, else rounds of graphs.

    Returns:
        ``start_ns``, ``end_ns``, ``pid``, ``tid``, ``found_by`` and ``found_name``; no row if nothing tells any.
    """
    sources: list[tuple[Rule, str, Callable[[], pl.DataFrame]]] = [
        (WORKER_STEPS_RULE, messages.STEPS_FROM_WORKER.code, lambda: find_worker_steps(trace)),
        (RANGE_STEPS_RULE, messages.STEPS_FROM_RANGES.code, lambda: find_range_steps(trace, without)),
        (GRAPH_STEPS_RULE, messages.STEPS_FROM_GRAPHS.code, lambda: find_graph_steps(trace)),
    ]
    found = NO_STEPS.with_columns(found_by=pl.lit(None, pl.String))
    for rule, code, find in sources:
        if found.is_empty() and rule.is_on(without):
            found = find().with_columns(found_by=pl.lit(code))
    return found
