"""Which step each call belongs to."""

from collections.abc import Sequence

import polars as pl

from tracekit.errors import StepError
from tracekit.ingest import batches
from tracekit.ingest.build import NUMBERED_STEP
from tracekit.ingest.nesting import outermost
from tracekit.trace import RankTrace
from tracekit.workload import phases

UPDATE = r"^Optimizer\.step#"
WHOLE_TRACE = 0
STEP_COLUMNS = ("step", "start_ns", "end_ns", "pid", "tid", "kind", "tokens", "whole")
NO_BATCH = {"kind": pl.lit(None, pl.String), "tokens": pl.lit(None, pl.Int64)}


def find(trace: RankTrace) -> pl.DataFrame:
    """The steps of a trace in order of start; of those that start together the longest first.

    Without ProfilerStep annotations these are the batches of a serving engine that marked several, or what lies between
    the updates of an optimizer, numbered from 0; else the trace is one step, number 0, from its first event to its
    last. Marks in which nothing was launched are no steps: a recording that ends with its block opens one last step,
    and nothing follows.

    Returns:
        ``step`` (ProfilerStep number), ``start_ns`` and ``end_ns`` on the CPU, ``pid`` and ``tid`` of the thread that
        runs the training or serving loop (null if the trace has no CPU events); of an engine's batches their ``kind``
        and ``tokens``, else null; ``whole``, of the one step of a trace without marks.
    """
    marked = _profiled(trace)
    if marked.is_empty():
        marked = _unmarked(trace)
    return _with_launches(marked, trace) if marked.height else _whole(trace)


def of_ranks(ranks: Sequence[RankTrace]) -> list[pl.DataFrame]:
    """The steps of each rank, as :func:`find` gives them.

    Ranks whose engines ran different numbers of batches, or that updated their parameters differently often, have no
    steps in common: of each the whole trace is one.
    """
    found = [find(rank) for rank in ranks]
    if len({table.height for table in found}) == 1 or any(_profiled(rank).height for rank in ranks):
        return found
    return [_whole(rank) for rank in ranks]


def _profiled(trace: RankTrace) -> pl.DataFrame:
    """The profiler's own marks."""
    return (
        trace.annotations.with_columns(step=pl.col("name").str.extract(NUMBERED_STEP).cast(pl.Int64, strict=False))
        .drop_nulls("step")
        .group_by("step")
        .agg(
            start_ns=pl.col("ts_ns").min(),
            end_ns=(pl.col("ts_ns") + pl.col("dur_ns")).max(),
            pid=pl.col("pid").first(),
            tid=pl.col("tid").first(),
        )
        .sort("start_ns", "end_ns", "step", descending=[False, True, False])
        .select("step", "start_ns", "end_ns", "pid", "tid", **NO_BATCH, whole=False)
    )


def _unmarked(trace: RankTrace) -> pl.DataFrame:
    """Several steps that other marks tell; none where these don't."""
    served = batches.find(trace)
    told = served if served.height > 1 else _updates(trace)
    if told.height < 2:
        return told.clear()
    return told.select(pl.int_range(pl.len()).alias("step"), *STEP_COLUMNS[1:-1], whole=False)


def _updates(trace: RankTrace) -> pl.DataFrame:
    """From the end of each update of the parameters to the end of the next.

    None where optimizers take turns, or where they step within the backward pass, parameter by parameter.
    """
    marks = outermost(trace.annotations.filter(pl.col("name").str.contains(UPDATE)))
    marks = marks.with_columns(end_ns=pl.col("ts_ns") + pl.col("dur_ns"))
    last = marks.group_by("name").agg(pl.len(), pl.col("end_ns").min()).sort("end_ns")
    if last["len"].n_unique() != 1:
        return marks.clear()
    rounds = marks.filter(pl.col("name") == last["name"][-1]).with_row_index("step")
    start_ns = pl.col("end_ns").shift(1).fill_null(_whole(trace)["start_ns"][0])
    found = rounds.select(pl.col("step").cast(pl.Int64), "pid", "tid", "end_ns", start_ns=start_ns, **NO_BATCH)
    forward = trace.calls.filter(phases.marked(trace.calls, trace.ops, trace.annotations).is_null())["ts_ns"]
    with_forward = assign(forward, found).drop_nulls().unique()
    return found if found["step"][1:].is_in(with_forward.implode()).all() else found.clear()


def _with_launches(marked: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    launches = trace.calls.join(trace.activities, on="correlation", how="semi")["ts_ns"]
    launched = marked.join(assign(launches, marked).to_frame(), on="step", how="semi", maintain_order="left")
    return launched if launched.height else marked


def is_whole_trace(steps: pl.DataFrame) -> bool:
    """Whether steps are those of a trace without marks of several, all of which :func:`find` takes for one."""
    return bool(steps["whole"].all())


def iterations(trace: RankTrace) -> str | None:
    """What ran several times, such as ``the optimizer ran 3 times``; ``None`` if nothing did.

    Of several optimizers the one that ran most counts.
    """
    optimizers = trace.annotations.filter(pl.col("name").str.contains(UPDATE))
    updates = max(optimizers["name"].value_counts()["count"].to_list(), default=0)
    return f"the optimizer ran {updates} times" if updates > 1 else None


def _whole(trace: RankTrace) -> pl.DataFrame:
    cpu = pl.concat([table.select("ts_ns", "dur_ns", "pid", "tid") for table in (trace.ops, trace.calls)])
    spans = cpu if cpu.height else trace.activities
    main = cpu.group_by("pid", "tid").len().sort("len", "pid", "tid", descending=[True, False, False]).head(1)
    span = spans.select(
        step=pl.lit(WHOLE_TRACE, dtype=pl.Int64),
        start_ns=pl.col("ts_ns").min(),
        end_ns=(pl.col("ts_ns") + pl.col("dur_ns")).max(),
        **NO_BATCH,
        whole=True,
    )
    return span.join(main.select("pid", "tid"), how="left", on=pl.lit(True)).select(*STEP_COLUMNS)


def _usual(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps of the kind that came most often; all where they have none."""
    often = steps.group_by("kind").agg(pl.len(), last=pl.col("step").last()).sort("len", "last")
    return steps.filter(pl.col("kind").eq_missing(pl.lit(often["kind"][-1])))


def marks(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps' starts, then their ends, as moments on their threads: ``ts_ns``, ``pid``, ``tid``."""
    moments = [steps.select("pid", "tid", ts_ns=edge) for edge in ("start_ns", "end_ns")]
    return pl.concat(moments)


def assign(times_ns: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """The step that each time falls into; null outside all of them (and where the time is null)."""
    starts = steps["start_ns"]
    index = starts.search_sorted(times_ns.fill_null(0), side="right").cast(pl.Int64) - 1
    row = index.clip(lower_bound=0)
    inside = (index >= 0) & (times_ns <= steps["end_ns"].gather(row)) & times_ns.is_not_null()
    return pl.select(pl.when(inside).then(steps["step"].gather(row))).to_series().rename("step")


def choose(steps: pl.DataFrame, wanted: str | None) -> pl.DataFrame:
    """The steps that ``wanted`` names.

    Args:
        steps: As :func:`find` gives them.
        wanted: ``None`` for all, of an engine's batches all of the kind that came most often, of two the later one;
            one number (``"7"``) or a range (``"7:9"``, both ends included).

    Raises:
        StepError: None of the steps is meant, or the text is no number or range.
    """
    if wanted is None:
        return _usual(steps)
    first, _, last = wanted.partition(":")
    lowest, highest = steps["step"][0], steps["step"][-1]
    have = f"steps {lowest} to {highest}" if highest > lowest else f"step {lowest} only"
    try:
        low, high = int(first), int(last or first)
    except ValueError:
        raise StepError(f"--steps {wanted!r} is no step.", f"Give a number or a range. The trace has {have}.") from None
    chosen = steps.filter(pl.col("step").is_between(low, high))
    if chosen.is_empty():
        raise StepError(f"The trace has no step {wanted}.", f"It has {have}.")
    return chosen
