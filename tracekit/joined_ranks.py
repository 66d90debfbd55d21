"""Join the ranks of a trace into one kernel table, one table of steps and one graph."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from predictors import Gpu
from tracekit.arrays import Ints
from tracekit.graph import Graph, build_graph
from tracekit.graph.build import build_graph_parts
from tracekit.graph.ranks import Collectives, align_steps, join_ranks, link_ranks
from tracekit.graph.ranks.lost import LackingRanks, RecordedCollectives, find_lacking_ranks
from tracekit.messages import Message, ProgressCallback, requests
from tracekit.program import StepTables
from tracekit.replay.collective_transfer import estimate_transfer_us
from tracekit.rules import RuleNames
from tracekit.trace import RankTrace
from tracekit.workload import kernel_table
from tracekit.workload import steps as step_table
from tracekit.workload.kernel_table import build_kernel_table
from tracekit.workload.owners import count_lost_launches


@dataclass(frozen=True, slots=True)
class JoinedRanks:
    """The measured ranks, joined.

    Attributes:
        ranks: The traces, one per rank.
        tables: The kernels and the steps of all ranks, rank after rank.
        graph: The dependency graph.
        collectives: The collectives at which the ranks meet; ``None`` for one rank.
        notes: What the ranks disagree on, and which of them were left out.
    """

    ranks: tuple[RankTrace, ...]
    tables: StepTables
    graph: Graph
    collectives: Collectives | None
    notes: tuple[Message, ...] = ()


def join_rank_traces(
    ranks: Sequence[RankTrace], steps: str | None, gpu: Gpu | None, without: RuleNames, progress: ProgressCallback
) -> JoinedRanks:
    """Classify the kernels of each rank, build their graphs, and join the ranks that have their collectives.

    Args:
        ranks: The traces, one per rank.
        steps: The steps to measure, as in :func:`tracekit.run.prepare_run`.
        gpu: The GPU on which they were recorded; ``None`` if it isn't known.
        without: Inference rules that are off.
        progress: Called with the name of each stage as it begins.

    Raises:
        StepError: A rank doesn't have these steps.
    """
    found, notes = step_table.find_steps_of_ranks(ranks, without)
    progress(requests.CLASSIFYING_KERNELS())
    classified = [build_kernel_table(rank, table, without) for rank, table in zip(ranks, found, strict=True)]
    numbers = [rank.rank or 0 for rank in ranks]
    if lacking := _find_lacking_ranks(ranks, numbers, classified, found):
        others = [rank for place, rank in enumerate(ranks) if place not in lacking.places]
        joined = join_rank_traces(others, steps, gpu, without, progress)
        return replace(joined, notes=(lacking.to_message(), *joined.notes))
    progress(requests.LINKING_DEPENDENCIES())
    if len(ranks) > 1 and not any(step_table.is_whole_trace(table) for table in found):
        classified, found, doubts = align_steps(numbers, classified, found)
        notes = (*notes, *doubts)
    asked_of_ranks = step_table.select_steps_of_ranks(found, steps)
    table = stack_ranks(classified, numbers)
    marks = [step_table.list_step_edges(rows) for rows in found]
    collectives = join_ranks(table, without) if len(ranks) > 1 else None
    if collectives is None:
        graph = build_graph(ranks[0], classified[0], marks[0], without)
    else:
        if any(rows["pid"].null_count() for rows in marks):
            marks = [rows.clear() for rows in marks]
        each = [build_graph_parts(*columns, without) for columns in zip(ranks, classified, marks, strict=True)]
        graph = link_ranks(list(zip(numbers, each, strict=True)), collectives)
    kernels, kept = split_collective_waits(table, graph.work_ns, collectives, len(ranks), without)
    graph = replace(graph, kept_ns=kept)
    if gpu is not None and kernel_table.PRECISION_RULE.is_on(without):
        kernels = kernel_table.detect_tf32(kernels, gpu)
    every, asked = stack_ranks(found, numbers), stack_ranks(asked_of_ranks, numbers)
    tables = StepTables(kernels, every, step_table.drop_first_step(asked, every, kernels), asked)
    return JoinedRanks(tuple(ranks), tables, graph, collectives, notes)


def _find_lacking_ranks(
    ranks: Sequence[RankTrace], numbers: Sequence[int], kernels: Sequence[pl.DataFrame], steps: Sequence[pl.DataFrame]
) -> LackingRanks | None:
    if len(ranks) < 2:
        return None
    return find_lacking_ranks(
        [
            RecordedCollectives(number, table, rows.height, count_lost_launches(rank)[0])
            for rank, number, table, rows in zip(ranks, numbers, kernels, steps, strict=True)
        ]
    )


def stack_ranks(tables: Sequence[pl.DataFrame], ranks: Sequence[int]) -> pl.DataFrame:
    """Stack a table of each rank, with the rank as the first column."""
    return pl.concat(
        table.select(pl.lit(rank, pl.Int64).alias("rank"), pl.all()) for rank, table in zip(ranks, tables, strict=True)
    )


def split_collective_waits(
    kernels: pl.DataFrame, work_ns: Ints, collectives: Collectives | None, ranks: int, without: RuleNames
) -> tuple[pl.DataFrame, Ints]:
    """Split every collective's duration into transfer and waiting for other ranks.

    If all ranks of a group were read, the replay derives all waiting. Otherwise the time beyond the shortest similar
    collective counts as waiting for a rank that wasn't read, and stays as measured.

    Args:
        kernels: The kernel table; collectives alone will do.
        work_ns: Duration of each kernel without the waiting that is derived again.
        collectives: The collectives at which the ranks meet; ``None`` for one rank.
        ranks: Number of ranks that were read.
        without: Inference rules that are off.

    Returns:
        The table, and the waiting of each kernel that is kept as measured.
    """
    recorded, since_last = kernels["dur_ns"], pl.Series("dur_ns", work_ns)
    complete = None
    if collectives is not None:
        everyone = pl.col("read") >= pl.col("size").fill_null(ranks)
        complete = collectives.table.filter(everyone).select("row", "transfer_us")
    transfer = estimate_transfer_us(kernels.with_columns(since_last), complete, without)
    work = (transfer * 1e3).round().cast(pl.Int64).fill_null(since_last)
    kept: Ints = np.maximum((since_last - work).to_numpy(), 0)
    return kernels.with_columns(dur_ns=work, wait_ns=recorded - work), kept
