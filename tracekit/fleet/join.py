"""Join the ranks of a job at their collectives, from the summaries of the ranks alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.fleet.summary import RankSummary
from tracekit.graph.ranks import Collectives, align_steps, join_ranks
from tracekit.graph.ranks.match import build_rendezvous_points
from tracekit.joined_ranks import split_collective_waits, stack_ranks
from tracekit.messages import Message
from tracekit.messages import traces as step_messages
from tracekit.program import StepTables
from tracekit.replay.compressed import JobLinks, RankLinks
from tracekit.rules import RuleNames
from tracekit.workload import steps as step_table


@dataclass(frozen=True, slots=True)
class PlacedRank:
    """A rank in its job: what was found of it by comparing it with other ranks.

    Attributes:
        summary: What was found of the rank alone.
        number: Its rank.
        steps: Its steps, numbered as the job's, with a column ``rank``.
        chosen_steps: Those of the job that are measured.
        shift_ns: From its trace's start to the job's, on the job's clock.
        collectives: Its collectives: ``place`` among all kernels; ``run_ns``, from the last arrival to the end, or all
            of its time; of that ``dur_ns``, the transfer, and ``kept_ns``, waiting that no rank explains; and
            ``wait_ns``, waiting in all.
        links: Where it meets other ranks.
        tf32_names: Names of kernels that ran faster than fp32 arithmetic allows on some rank.
    """

    summary: RankSummary
    number: int
    steps: pl.DataFrame
    chosen_steps: pl.DataFrame
    shift_ns: int
    collectives: pl.DataFrame
    links: JobLinks
    tf32_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JoinedFleet:
    """The ranks of a job, joined.

    Attributes:
        ranks: The ranks, in order.
        tables: The steps of all ranks, and of the kernels the collectives alone.
        collectives: The collectives at which the ranks meet; ``None`` for one rank.
        rendezvous: Number of rendezvous.
        notes: What the ranks disagree on.
        gpus_per_rank: GPUs that a rank drives, of several ranks the one that drives most.
    """

    ranks: tuple[PlacedRank, ...]
    tables: StepTables
    collectives: Collectives | None
    rendezvous: int
    notes: tuple[Message, ...]
    gpus_per_rank: int = 1


def find_repeats(summaries: Sequence[RankSummary]) -> list[RankSummary]:
    """Return the ranks that have to be summarised again, as they have no steps or marks in common with others.

    As :func:`tracekit.workload.steps.find_steps_of_ranks` decides it.
    """
    unmarked = sum(not one.is_marked for one in summaries)
    differ = len({one.steps.height for one in summaries}) > 1
    as_one = 0 < unmarked < len(summaries) or (bool(unmarked) and differ)
    lacks_thread = any(one.steps["pid"].null_count() for one in summaries)
    again = [
        replace(
            one.task,
            as_one_step=one.task.as_one_step or as_one,
            without_marks=one.task.without_marks or (lacks_thread and len(summaries) > 1),
        )
        for one in summaries
    ]
    return [replace(one, task=task) for one, task in zip(summaries, again, strict=True) if task != one.task]


def join_fleet(summaries: Sequence[RankSummary], wanted: str | None, without: RuleNames) -> JoinedFleet:
    """Join the ranks, as :func:`tracekit.joined_ranks.join_rank_traces` does with whole traces.

    Args:
        summaries: The ranks, in order.
        wanted: The steps to measure, as in :func:`tracekit.run.prepare_run`.
        without: Inference rules that are off.

    Raises:
        StepError: A rank doesn't have these steps.
    """
    numbers = [one.trace.rank or 0 for one in summaries]
    found, rows = [one.steps for one in summaries], [one.kernels for one in summaries]
    notes = list(_note_steps(summaries))
    old = found
    if len(summaries) > 1 and not any(step_table.is_whole_trace(table) for table in found):
        rows, found, doubts = align_steps(numbers, rows, found)
        notes += doubts
    tables = _choose_steps(summaries, numbers, stack_ranks(rows, numbers), (old, found), wanted)
    collectives = join_ranks(tables.kernels, without) if len(summaries) > 1 else None
    split = _split_waits(tables.kernels, collectives, len(summaries), without)
    links, count = _link_ranks(split, collectives)
    ahead = collectives.clock_offset_ns if collectives else {}
    origins = [one.origin_ns - ahead.get(rank, 0) for one, rank in zip(summaries, numbers, strict=True)]
    names = tuple(sorted({name for one in summaries for name in one.tf32_names}))
    by_rank = split.partition_by("rank", as_dict=True, maintain_order=True)
    placed = [
        PlacedRank(
            summary=replace(one, kernels=one.kernels.clear(), tf32_names=()),
            number=rank,
            steps=steps.select(pl.lit(rank, pl.Int64).alias("rank"), pl.all()),
            chosen_steps=tables.chosen_steps.select("step").unique(maintain_order=True),
            shift_ns=origin - min(origins),
            collectives=by_rank[(rank,)] if (rank,) in by_rank else split.clear(),
            links=link,
            tf32_names=names,
        )
        for one, rank, steps, origin, link in zip(
            summaries, numbers, found, origins, (links.get(rank, _NO_LINKS) for rank in numbers), strict=True
        )
    ]
    whole = replace(tables, kernels=split)
    gpus = max(one.gpus for one in summaries)
    return JoinedFleet(tuple(placed), whole, collectives, count, tuple(notes), gpus)


_NOTHING = np.empty(0, np.int64)
_NO_LINKS = JobLinks(RankLinks(_NOTHING, _NOTHING), _NOTHING, _NOTHING)


def _note_steps(summaries: Sequence[RankSummary]) -> list[Message]:
    unmarked = [one.trace.rank or 0 for one in summaries if not one.is_marked]
    said = [step_messages.STEPS_MARKED_IN_PART(ranks=unmarked)] if 0 < len(unmarked) < len(summaries) else []
    late = [one.late_us for one in summaries if one.late_us is not None]
    sources = step_table.describe_sources([one.steps for one in summaries]) if unmarked else []
    begun = [step_messages.STEP_BEGINS_LATE(waited_us=max(late))] if late else []
    return [*said, *sources, *begun, *step_table.note_repeated_labels([one.steps for one in summaries])]


def _choose_steps(
    summaries: Sequence[RankSummary],
    numbers: Sequence[int],
    kernels: pl.DataFrame,
    steps: tuple[Sequence[pl.DataFrame], Sequence[pl.DataFrame]],
    wanted: str | None,
) -> StepTables:
    """Choose the steps that are measured; ``steps`` are those of each rank, as it numbers them and as the job does."""
    every = stack_ranks(steps[1], numbers)
    asked = stack_ranks(step_table.select_steps_of_ranks(steps[1], wanted), numbers)
    with_kernels = pl.concat(
        [
            new.filter(old["step"].is_in(one.kernel_steps.implode())).select("step")
            for one, old, new in zip(summaries, *steps, strict=True)
        ]
    )
    return StepTables(kernels, every, step_table.drop_first_step(asked, every, with_kernels), asked)


def _split_waits(
    kernels: pl.DataFrame, collectives: Collectives | None, ranks: int, without: RuleNames
) -> pl.DataFrame:
    """Split the collectives' time: see :class:`PlacedRank`."""
    run_ns = kernels["run_ns"].to_numpy().copy()
    if collectives is not None:
        table = collectives.table
        run_ns[table["row"].to_numpy()] = np.rint(table["transfer_us"].to_numpy() * 1e3)
    split, kept = split_collective_waits(kernels, run_ns, collectives, ranks, without)
    return split.with_columns(run_ns=run_ns, kept_ns=kept)


def _link_ranks(kernels: pl.DataFrame, collectives: Collectives | None) -> tuple[dict[int, JobLinks], int]:
    """Return where each rank meets others, and how many rendezvous there are."""
    if collectives is None:
        return {}, 0
    points = build_rendezvous_points(collectives)
    arrival = _group_by_rank(kernels, points.arrival_row, points.arrival_point)
    end = _group_by_rank(kernels, points.end_row, points.end_point)
    nothing = (_NOTHING, _NOTHING)
    links = {}
    for rank in arrival.keys() | end.keys():
        (arrived, at), (ended, after) = arrival.get(rank, nothing), end.get(rank, nothing)
        links[rank] = JobLinks(RankLinks(arrived, ended), after, at)
    return links, len(points.names)


def _group_by_rank(kernels: pl.DataFrame, row: Ints, point: Ints) -> dict[int, tuple[Ints, Ints]]:
    """Group rendezvous by rank: the places of the collectives among the rank's kernels, and the rendezvous."""
    table = kernels[row].select("rank", pl.col("place").cast(pl.Int64)).with_columns(point=point)
    return {
        rank: (part["place"].to_numpy(), part["point"].to_numpy())
        for (rank,), part in table.partition_by("rank", as_dict=True, maintain_order=True).items()
    }
