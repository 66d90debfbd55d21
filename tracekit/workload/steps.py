"""Find the steps of a trace, and the step of each call."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import polars as pl

from tracekit.arrays import (
    NO_NUMBER,
    Bools,
    DistinctNames,
    Ints,
    fill_nulls,
    list_distinct,
    list_used_rows,
    make_column,
    make_nulls,
)
from tracekit.errors import StepError
from tracekit.format import format_ranges
from tracekit.ingest import batches
from tracekit.ingest.batches import select_outermost
from tracekit.ingest.table_checks import NUMBERED_STEP
from tracekit.messages import Message
from tracekit.messages import traces as messages
from tracekit.rules import NO_RULES, Rule, RuleNames
from tracekit.trace import RankTrace
from tracekit.workload import module_paths, step_kinds, unmarked_steps
from tracekit.workload.step_kinds import USUAL_KIND, number_kinds

MAX_SHARED_FRACTION = 0.5
"""Part of a mark's time that another mark of the same number covers, up to which both are steps of their own; beyond,
several threads marked one step. Clocks round the edges of marks that follow each other."""


@dataclass(frozen=True, slots=True)
class _Marks:
    """Marks of numbered steps: recorded number, start, end and thread of each."""

    label: Ints
    start_ns: Ints
    end_ns: Ints
    pid: Ints
    tid: Ints

    @classmethod
    def from_annotations(cls, annotations: pl.DataFrame) -> Self:
        names = DistinctNames.from_column(annotations["name"])
        numbered = (re.search(NUMBERED_STEP, name) for name in names.names)
        label = np.array([int(found[1]) if found else NO_NUMBER for found in numbered], np.int64)[names.number]
        rows = label != NO_NUMBER
        start, length, pid, tid = (
            fill_nulls(annotations[name], NO_NUMBER)[rows] for name in ("ts_ns", "dur_ns", "pid", "tid")
        )
        return cls(label[rows], start, start + length, pid, tid)

    def take(self, rows: Ints | Bools) -> Self:
        """Return some of the marks."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))


def find_marked_steps(trace: RankTrace) -> pl.DataFrame:
    """Find the steps that the profiler marked, in order of start; of those that start together the longest first.

    Returns:
        ``step``, the recorded number, or if numbers repeat the place in time; ``start_ns``, ``end_ns``, ``pid``,
        ``tid``; columns that only other steps have; ``label``, the recorded number; and ``begins_at_mark``, whether the
        step doesn't follow the one before, as unrecorded ones lie between.
    """
    marks = _merge_threads(_Marks.from_annotations(trace.annotations))
    count = marks.label.size
    repeats = np.unique(marks.label).size < count
    follows = np.concatenate([[False], marks.label[1:] == marks.label[:-1] + 1])[:count]
    return pl.DataFrame(
        [
            pl.Series("step", np.arange(count) if repeats else marks.label, dtype=pl.Int64),
            pl.Series("start_ns", marks.start_ns, dtype=pl.Int64),
            pl.Series("end_ns", marks.end_ns, dtype=pl.Int64),
            make_column("pid", marks.pid, NO_NUMBER),
            make_column("tid", marks.tid, NO_NUMBER),
            *(make_nulls(name, count, dtype) for name, dtype in BATCH_COLUMNS.items()),
            pl.Series("whole", np.zeros(count, np.bool_)),
            pl.Series("label", marks.label, dtype=pl.Int64),
            make_nulls("work", count),
            pl.Series("begins_at_mark", ~follows),
        ]
    )


def _merge_threads(marks: _Marks) -> _Marks:
    """Merge marks of one step by several threads; drop those of another number within a step of the main thread.

    The main thread has most marks. Marks of a number are in order of start; one that mostly lies within those before
    it is the same step::

        |---- 7, main thread ----|                  |---- 7 again ----|
         |-- 7, another thread --|
    """
    if not marks.label.size:
        return marks
    is_main = _find_main_thread(marks)
    order = np.lexsort((-marks.end_ns, marks.start_ns, marks.label))
    marks, is_main = marks.take(order), is_main[order]
    shared = _find_latest_end(marks) - marks.start_ns
    is_new = shared <= MAX_SHARED_FRACTION * (marks.end_ns - marks.start_ns)
    first = np.flatnonzero(is_new)
    group = np.cumsum(is_new) - 1
    main_first = np.lexsort((~is_main, group))[first]
    merged = replace(
        marks.take(first),
        end_ns=np.maximum.reduceat(marks.end_ns, first),
        pid=marks.pid[main_first],
        tid=marks.tid[main_first],
    )
    in_time = np.lexsort((merged.label, -merged.end_ns, merged.start_ns))
    return _drop_marks_within(merged.take(in_time), np.logical_or.reduceat(is_main, first)[in_time])


def _find_main_thread(marks: _Marks) -> Bools:
    """Return which marks are of the thread with most of them; of several the one that begins first."""
    order = np.lexsort((marks.tid, marks.pid))
    pid, tid = marks.pid[order], marks.tid[order]
    new = np.concatenate([[True], (pid[1:] != pid[:-1]) | (tid[1:] != tid[:-1])])
    begins = np.flatnonzero(new)
    count = np.diff(np.append(begins, order.size))
    earliest = np.minimum.reduceat(marks.start_ns[order], begins)
    main = order[begins[np.lexsort((tid[begins], pid[begins], earliest, -count))[0]]]
    found: Bools = (marks.pid == marks.pid[main]) & (marks.tid == marks.tid[main])
    return found


def _find_latest_end(marks: _Marks) -> Ints:
    """Return the latest end of the marks before each that have its number; its own start without one."""
    by_end = np.argsort(marks.end_ns, kind="stable")
    rank = np.empty_like(by_end)
    rank[by_end] = np.arange(by_end.size)
    number = np.unique(marks.label, return_inverse=True)[1]
    latest = np.maximum.accumulate(number * by_end.size + rank)[:-1]
    same = number[1:] == number[:-1]
    earlier = np.where(same, marks.end_ns[by_end[latest % by_end.size]], marks.start_ns[1:])
    found: Ints = np.concatenate([marks.start_ns[:1], earlier])
    return found


def _drop_marks_within(found: _Marks, is_main: Bools) -> _Marks:
    """Drop what only other threads marked, where it overlaps steps of the main thread."""
    begun = np.searchsorted(np.sort(found.start_ns[is_main]), found.end_ns, side="left")
    ended = np.searchsorted(np.sort(found.end_ns[is_main]), found.start_ns, side="right")
    return found.take(is_main | (begun <= ended))


OPTIMIZER_STEP_MARK = r"^Optimizer\.step#"
WHOLE_TRACE_STEP = 0
STEPS_RULE = Rule(
    "optimizer-steps",
    "Without step marks, a step runs from one update of the optimizer to the next.",
    "ResNet of facebookresearch/param, which marks no steps: without the rule all of its updates count as one step.",
)
STEP_COLUMNS = ("step", "start_ns", "end_ns", "pid", "tid", "kind", "tokens", "found_by", "found_name", "whole")
BATCH_COLUMNS = {"kind": pl.String, "tokens": pl.Int64, "found_by": pl.String, "found_name": pl.String}
"""Columns, and their types, that steps have which the profiler didn't mark."""
NO_BATCH_COLUMNS = {name: pl.lit(None, dtype) for name, dtype in BATCH_COLUMNS.items()}
MAX_NAMED_RUNS = 8
"""Most runs of numbers that a message names."""
_IS_USUAL = pl.col("work") == USUAL_KIND
NO_MARK_COLUMNS = {
    "label": pl.lit(None, pl.Int64), "work": pl.lit(None, pl.Int64), "begins_at_mark": pl.lit(False),
    "begins_cold": pl.lit(True),
}  # fmt: skip


def find_steps(trace: RankTrace, without: RuleNames = NO_RULES, *, as_one: bool = False) -> pl.DataFrame:
    """Find the steps of a trace in order of start; among steps that start together the longest comes first.

    Without ProfilerStep annotations, steps are the first of these that there are, numbered from 0: the batches that a
    serving engine marks, the intervals between the updates of an optimizer, calls of a serving engine's worker, named
    ranges that repeat evenly, rounds of graph launches. Otherwise the trace is one step, number 0, from its first event
    to its last, or what lies between ranges that prepare the run. Marks without launches are no steps: a recording that
    ends with its block opens one last step that stays empty.

    With ``as_one`` the whole trace is one step in any case.

    Returns:
        ``step`` (ProfilerStep number; the place in time where these repeat), ``start_ns`` and ``end_ns`` on the CPU,
        ``pid`` and ``tid`` of the thread that runs the training or serving loop (null without CPU events), ``kind`` and
        ``tokens`` of an engine's batches (else null), ``found_by`` (code of the message that says by what, unless a
        mark says so) and ``found_name`` (the name of that), ``whole``, which is true for the one step of a trace
        without marks, ``label`` (ProfilerStep number as recorded), ``work`` (where labels repeat, its kind of work as
        ``number_kinds`` numbers it), ``begins_at_mark`` (whether unrecorded steps lie before it), ``begins_cold``
        (whether it is the recording's first, with an empty launch queue), and ``waited_ns``: how long a kernel of a
        marked first step waited for work from before the recording, until ``waited_until_ns`` (else null).
    """
    marked = find_marked_steps(trace)
    if marked.is_empty() and not as_one:
        marked = _infer_unmarked_steps(trace, without)
    if marked.is_empty() or as_one:
        return _make_whole_trace_step(trace, without)
    found = _drop_empty_steps(marked, trace)
    work = number_kinds(found, assign_steps(trace.calls["ts_ns"], found), trace, without)
    kind = fill_nulls(work, NO_NUMBER)
    is_other_work = np.concatenate([[False], kind[1:] != kind[:-1]])
    late = step_kinds.find_busy_start(trace, without, found["start_ns"][0])
    until_ns, waited_ns = (NO_NUMBER, NO_NUMBER) if late is None else late
    first = np.arange(found.height) == 0
    columns = {column.name: column for column in found.get_columns()} | {
        "work": work,
        "begins_at_mark": pl.Series("begins_at_mark", found["begins_at_mark"].to_numpy() | is_other_work),
        "begins_cold": pl.Series("begins_cold", first & (not trace.is_exported)),
        "waited_ns": make_column("waited_ns", np.where(first, waited_ns, NO_NUMBER), NO_NUMBER),
        "waited_until_ns": make_column("waited_until_ns", np.where(first, until_ns, NO_NUMBER), NO_NUMBER),
    }
    return pl.DataFrame(list(columns.values()))


def find_steps_of_ranks(
    ranks: Sequence[RankTrace], without: RuleNames = NO_RULES
) -> tuple[list[pl.DataFrame], tuple[Message, ...]]:
    """Find the steps of each rank, as ``find_steps`` does.

    Ranks have no steps in common if the profiler marked those of some of them only, their engines ran different numbers
    of batches, or their optimizers different numbers of updates. Then each rank's whole trace is one step.

    Returns:
        The steps of each rank, and messages: which ranks lack marks that others have, whether the step begins late, and
        what the marks of the first rank that repeats numbers leave to be said.
    """
    found = [find_steps(rank, without) for rank in ranks]
    unmarked = [rank.rank or 0 for rank in ranks if not has_profiler_steps(rank)]
    if not unmarked:
        return found, note_repeated_labels(found)
    said = [messages.STEPS_MARKED_IN_PART(ranks=unmarked)] if len(unmarked) < len(ranks) else []
    if said or len({table.height for table in found}) > 1:
        found = [find_steps(rank, without, as_one=True) for rank in ranks]
    late = [step_kinds.find_busy_start(rank, without) for rank in ranks] if is_whole_trace(found[0]) else []
    waited_us = [waited / 1e3 for _, waited in filter(None, late)]
    return found, (
        *said,
        *describe_sources(found),
        *([messages.STEP_BEGINS_LATE(waited_us=max(waited_us))] if waited_us else []),
    )


def describe_sources(steps: Sequence[pl.DataFrame]) -> list[Message]:
    """Say by what the steps of the ranks were found, unless marks say so; of ranks that are alike once."""
    told = pl.concat(table.select("found_by", "found_name") for table in steps).drop_nulls("found_by")
    sources = told.group_by("found_by", maintain_order=True).agg(pl.col("found_name").first()).rows()
    return [messages.SOURCES[code](**({} if name is None else {"name": name})) for code, name in sources]


def has_profiler_steps(trace: RankTrace) -> bool:
    """Return whether the profiler marked steps."""
    return _Marks.from_annotations(trace.annotations).label.size > 0


def _infer_unmarked_steps(trace: RankTrace, without: RuleNames) -> pl.DataFrame:
    """Infer steps from the first of other marks that there are; none if there are no such marks."""
    found = batches.find_batches(trace)
    if found.is_empty() and STEPS_RULE.is_on(without):
        updates = _infer_optimizer_steps(trace)
        found = updates if updates.height > 1 else updates.clear()
    if found.is_empty():
        found = unmarked_steps.infer_steps(trace, without)
    table = found.select(
        pl.col(name) if name in found.columns else NO_BATCH_COLUMNS[name].alias(name) for name in STEP_COLUMNS[1:-1]
    )
    return table.select(pl.int_range(pl.len()).alias("step"), pl.all(), whole=False, **NO_MARK_COLUMNS)


def _infer_optimizer_steps(trace: RankTrace) -> pl.DataFrame:
    """Infer steps from the end of each parameter update to the end of the next.

    Return none if optimizers take turns, or if they step within the backward pass, parameter by parameter.

        update 0 |      step 1       | update 1 |      step 2       | update 2 |
                 ^ end of update 0               ^ end of update 1
    """
    marks = select_outermost(trace.annotations.filter(pl.col("name").str.contains(OPTIMIZER_STEP_MARK)))
    marks = marks.with_columns(end_ns=pl.col("ts_ns") + pl.col("dur_ns"))
    last = marks.group_by("name").agg(pl.len(), pl.col("end_ns").min()).sort("end_ns")
    if last["len"].n_unique() != 1:
        return marks.clear()
    rounds = marks.filter(pl.col("name") == last["name"][-1]).with_row_index("step")
    start_ns = pl.col("end_ns").shift(1).fill_null(_list_spans(trace)["ts_ns"].min())
    found = rounds.select(
        *(pl.col("step").cast(pl.Int64), "pid", "tid", "end_ns"),
        start_ns=start_ns,
        found_by=pl.lit(messages.STEPS_FROM_UPDATES.code),
    )
    forward = trace.calls.filter(
        module_paths.find_enclosing_phases(trace.calls, trace.ops, trace.annotations).is_null()
    )["ts_ns"]
    with_forward = assign_steps(forward, found).drop_nulls().unique()
    return found if found["step"][1:].is_in(with_forward.implode()).all() else found.clear()


def _drop_empty_steps(marked: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    launches = trace.calls["ts_ns"][list_used_rows(trace.launches.row)]
    launched = np.isin(marked["step"].to_numpy(), fill_nulls(assign_steps(launches, marked), NO_NUMBER))
    return marked[np.flatnonzero(launched)] if launched.any() else marked


def is_whole_trace(steps: pl.DataFrame) -> bool:
    """Return whether the steps are the single step of a trace without several marks."""
    return bool(steps["whole"].all())


def count_optimizer_steps(trace: RankTrace) -> int:
    """Count the steps of the optimizer that ran most often."""
    optimizers = trace.annotations["name"][trace.find_named("annotations", OPTIMIZER_STEP_MARK)]
    return max(optimizers.value_counts()["count"].to_list(), default=0)


def _list_spans(trace: RankTrace) -> pl.DataFrame:
    """List the ops and calls with their threads; without any, the GPU's activities with null threads."""
    cpu = pl.concat([table.select("ts_ns", "dur_ns", "pid", "tid") for table in (trace.ops, trace.calls)])
    no_thread = (pl.lit(None, pl.Int64).alias(name) for name in ("pid", "tid"))
    return cpu if cpu.height else trace.activities.select("ts_ns", "dur_ns", *no_thread)


def _make_whole_trace_step(trace: RankTrace, without: RuleNames) -> pl.DataFrame:
    measured = unmarked_steps.find_measured_stretch(trace, without)
    late = None if measured else step_kinds.find_busy_start(trace, without)
    spans = _list_spans(trace)
    main = spans.group_by("pid", "tid").len().sort("len", "pid", "tid", descending=[True, False, False]).head(1)
    span = spans.select(
        step=pl.lit(WHOLE_TRACE_STEP, dtype=pl.Int64),
        start_ns=pl.lit(late[0]) if late else pl.col("ts_ns").min(),
        end_ns=(pl.col("ts_ns") + pl.col("dur_ns")).max(),
        **NO_BATCH_COLUMNS,
        whole=True,
    )
    if late:  # the thread's time doesn't tell when the kernel starts on a faster host
        main = main.clear()
    if measured:
        told = measured.name or ", ".join(measured.left_out)
        code = messages.STEP_WITHOUT_SETUP.code if measured.name is None else messages.STEP_FROM_RANGE.code
        edges = {"start_ns": measured.start_ns, "end_ns": measured.end_ns, "found_by": code, "found_name": told}
        span = span.with_columns(whole=False, **{name: pl.lit(value) for name, value in edges.items()})
    return span.join(main.select("pid", "tid"), how="left", on=pl.lit(True)).select(
        *STEP_COLUMNS, **NO_MARK_COLUMNS, waited_ns=pl.lit(None, pl.Int64), waited_until_ns=pl.lit(None, pl.Int64)
    )


def _select_usual_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """Select the steps of the most frequent kind; all steps if they have no kind."""
    if steps["kind"].null_count() == steps.height:
        return steps
    often = steps.group_by("kind").agg(pl.len(), last=pl.col("step").last()).sort("len", "last")
    return steps.filter(pl.col("kind").eq_missing(pl.lit(often["kind"][-1])))


def _select_usual_work(steps: pl.DataFrame) -> pl.DataFrame:
    """Select the steps of the most usual kind of work; all steps where kinds weren't told apart."""
    if not _has_repeated_labels(steps):
        return steps
    return steps.filter((pl.col("work") == pl.col("work").min()).fill_null(value=True))


def drop_first_step(asked: pl.DataFrame, steps: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Drop the trace's first step, which starts with an empty launch queue, unless nothing else would be measured."""
    number, is_first = steps["step"].to_numpy(), steps["begins_cold"].to_numpy()
    firsts = np.setdiff1d(number[is_first], number[~is_first])
    rest = ~np.isin(asked["step"].to_numpy(), firsts)
    measured = np.isin(fill_nulls(kernels["step"], NO_NUMBER), asked["step"].to_numpy()[rest]).any()
    return asked[np.flatnonzero(rest)] if measured else asked


def list_step_edges(steps: pl.DataFrame) -> pl.DataFrame:
    """List the steps' starts, then their ends, on their threads: ``ts_ns``, ``pid``, ``tid``."""
    moments = [steps.select("pid", "tid", ts_ns=edge) for edge in ("start_ns", "end_ns")]
    return pl.concat(moments)


def assign_steps(times_ns: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """Return the step of each time; null outside all steps and for null times."""
    starts, ends, numbers = (steps[name].to_numpy() for name in ("start_ns", "end_ns", "step"))
    times = fill_nulls(times_ns, NO_NUMBER)
    row = np.searchsorted(starts, times, side="right") - 1
    inside = (row >= 0) & (times <= ends[row])
    return make_column("step", np.where(inside, numbers[row], NO_NUMBER), NO_NUMBER)


def select_steps_of_ranks(tables: Sequence[pl.DataFrame], wanted: str | None) -> list[pl.DataFrame]:
    """Select the steps of each rank, as ``select_steps`` does; of repeated numbers those that the first rank's tell.

    The tables have the numbers of the first rank.

    Raises:
        StepError: No step of a rank matches.
    """
    first, *others = [select_steps(table, wanted) for table in tables]
    if first["work"].null_count() == first.height:
        return [first, *others]
    return [first, *(table.join(first, on="step", how="semi", maintain_order="left") for table in tables[1:])]


def select_steps(steps: pl.DataFrame, wanted: str | None) -> pl.DataFrame:
    """Select the steps that ``wanted`` names; of those, where numbers repeat, those of the most usual kind of work.

    Args:
        steps: As ``find_steps`` returns them.
        wanted: ``None`` for all steps, or for all batches of an engine's most frequent kind (of two kinds the later
            one); one number (``"7"``) or a range (``"7:9"``, both ends included).

    Raises:
        StepError: No step matches.
    """
    if wanted is None:
        return _select_usual_work(_select_usual_steps(steps))
    first, _, last = wanted.partition(":")
    chosen = steps.filter(pl.col("step").is_between(int(first), int(last or first)))
    if chosen.is_empty():
        raise StepError(messages.STEP_NOT_FOUND(steps=wanted, known=describe_numbers(steps)))
    return _select_usual_work(chosen)


def describe_numbers(steps: pl.DataFrame) -> str:
    """Describe the numbers by which steps are asked for, ``steps 5-7, 20-22``; and the recorded ones if they repeat."""
    numbers = _name_runs(pl.Series(sorted(list_distinct(steps["step"]))))
    known = f"steps {numbers}" if steps.height > 1 else f"step {numbers} only"
    labels = describe_labels(steps)
    return f"{known} in order of time, marked {labels}" if labels else known


def describe_labels(steps: pl.DataFrame) -> str | None:
    """Describe the recorded numbers in order of time, ``1-2, 1-2``; ``None`` where none repeats."""
    if not _has_repeated_labels(steps):
        return None
    return _name_runs(steps["label"])


def _name_runs(numbers: pl.Series) -> str:
    """Name numbers as runs, the first few of many."""
    runs = format_ranges(numbers.to_list())
    more = len(runs) - MAX_NAMED_RUNS
    return ", ".join(runs[:MAX_NAMED_RUNS]) + (f" and {more} more" if more > 0 else "")


def _has_repeated_labels(steps: pl.DataFrame) -> bool:
    return steps["work"].count() > 0


def note_repeated_labels(tables: Sequence[pl.DataFrame]) -> tuple[Message, ...]:
    """Say that numbers of steps repeat, and of kinds of steps which is measured by default."""
    steps = next(filter(_has_repeated_labels, tables), None)
    if steps is None:
        return ()
    said = messages.STEP_NUMBERS_REPEATED(labels=_name_runs(steps["label"]), numbers=_name_runs(steps["step"]))
    usual, others = (steps.filter(rows)["step"] for rows in (_IS_USUAL, ~_IS_USUAL))
    if others.is_empty():
        return (said,)
    first, *_ = format_ranges(others.to_list())
    return said, messages.STEPS_OF_OTHER_WORK(
        usual=_name_runs(usual), others=_name_runs(others), steps=first.replace("-", ":")
    )
