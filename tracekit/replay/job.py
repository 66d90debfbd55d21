"""The ranks of a trace to one kernel table, one table of steps and one graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.graph import Graph, link
from tracekit.graph.link import parts
from tracekit.graph.ranks import Collectives, join, link_ranks
from tracekit.replay.transfer import transfer_us
from tracekit.trace import RankTrace
from tracekit.workload import steps as step_table
from tracekit.workload.extract import extract


@dataclass(frozen=True, slots=True)
class Job:
    """What is measured.

    Attributes:
        kernels: The kernel table; ``dur_ns`` of a collective is its transfer, ``wait_ns`` what it waited for other
            ranks, and any kernel inside for the one before on its stream. Of several ranks, one after the other, with a
            column ``rank``.
        steps: All steps; of several ranks, with a column ``rank``.
        chosen: Those that are measured.
        graph: What has to wait for what.
        collectives: Where the ranks meet; ``None`` for one rank.
    """

    kernels: pl.DataFrame
    steps: pl.DataFrame
    chosen: pl.DataFrame
    graph: Graph
    collectives: Collectives | None


def gather(ranks: Sequence[RankTrace], steps: str | None, progress: Callable[[str], None]) -> Job:
    """Classify the kernels of each rank, link them, and join the ranks.

    Args:
        ranks: What each recorded.
        steps: The steps to measure, as in :func:`tracekit.replay.run.prepare`.
        progress: Called with the name of each stage as it begins.

    Raises:
        StepError: A rank doesn't have these steps.
    """
    found = step_table.of_ranks(ranks)
    chosen = [step_table.choose(table, steps) for table in found]
    progress("classify kernels")
    kernels = [extract(rank, table) for rank, table in zip(ranks, found, strict=True)]
    progress("link dependencies")
    if len(ranks) == 1:
        graph = link(ranks[0], kernels[0], step_table.marks(found[0]))
        return _without_waiting(Job(kernels[0], found[0], chosen[0], graph, None))
    numbers = [rank.rank or 0 for rank in ranks]
    table = _stack(kernels, numbers)
    collectives = join(table)
    marks = [step_table.marks(rows) for rows in found]
    if any(rows["pid"].null_count() for rows in marks):
        marks = [rows.clear() for rows in marks]
    each = [parts(*columns) for columns in zip(ranks, kernels, marks, strict=True)]
    graph = link_ranks(list(zip(numbers, each, strict=True)), collectives)
    return _without_waiting(Job(table, _stack(found, numbers), _stack(chosen, numbers), graph, collectives))


def _stack(tables: Sequence[pl.DataFrame], ranks: Sequence[int]) -> pl.DataFrame:
    return pl.concat(
        table.select(pl.lit(rank, pl.Int64).alias("rank"), pl.all()) for rank, table in zip(ranks, tables, strict=True)
    )


def _without_waiting(job: Job) -> Job:
    """``job`` with every collective's duration split into transfer and waiting.

    Where all ranks of a group were read, all waiting is derived anew. Else what exceeds the shortest of like
    collectives is taken for waiting for a rank that wasn't read, and kept.
    """
    recorded = job.kernels["dur_ns"]
    since_last = pl.Series("dur_ns", job.graph.work_ns)
    complete = None
    if job.collectives is not None:
        everyone = pl.col("read") >= pl.col("size").fill_null(job.kernels["rank"].n_unique())
        complete = job.collectives.table.filter(everyone).select("row", "transfer_us")
    transfer = transfer_us(job.kernels.with_columns(since_last), complete)
    work = (transfer * 1e3).round().cast(pl.Int64).fill_null(since_last)
    kept = np.maximum((since_last - work).to_numpy(), 0)
    kernels = job.kernels.with_columns(dur_ns=work, wait_ns=recorded - work)
    return replace(job, kernels=kernels, graph=replace(job.graph, kept_ns=kept))
