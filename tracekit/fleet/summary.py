"""Work on one rank alone: read it, build its kernel table and its graph, and summarise what other ranks need."""

from dataclasses import dataclass, replace
from io import BytesIO

import polars as pl

from predictors import Gpu
from tracekit import ingest
from tracekit.errors import TraceError
from tracekit.fleet.rank_files import StoredRank, write_rank
from tracekit.graph.build import build_graph_parts
from tracekit.graph.graph import assemble_graph, find_unexplained
from tracekit.ingest import correlations
from tracekit.ingest.source import ExpandedInputs, TraceSource
from tracekit.messages import Message
from tracekit.models.llm import ModelConfig
from tracekit.models.lookups import IndexPattern, find_table_skews
from tracekit.rules import RuleNames
from tracekit.run import find_recorded_gpu
from tracekit.timing import correct_times
from tracekit.trace import TABLE_NAMES, RankTrace
from tracekit.workload import kernel_table, step_kinds
from tracekit.workload import steps as step_table
from tracekit.workload.kernel_table import build_kernel_table, count_gpus_per_rank
from tracekit.workload.owners import count_lost_launches


@dataclass(frozen=True, slots=True)
class RankTask:
    """A rank to work on.

    Attributes:
        source: Its trace.
        given: What was given with all traces.
        folder: Where its tables are kept, a path or URI.
        without: Inference rules that are off.
        model: Sizes of the model that it ran; ``None`` if the trace's files tell.
        indices: How rows of embedding tables are looked up; ``None`` if nobody knows.
        gpu: The GPU of the trace, where the user named it.
        cache: Whether to use the cache of decoded traces.
        memory_bytes: Memory limit of its tables.
        stacks: Whether to read Python calls.
        as_one_step: Whether the whole trace is one step, as ranks have no steps in common.
        without_marks: Whether replays don't time the steps' marks, as other ranks have none.
    """

    source: TraceSource
    given: ExpandedInputs
    folder: str
    without: RuleNames
    model: ModelConfig | None
    indices: IndexPattern | None
    gpu: Gpu | None
    cache: bool
    memory_bytes: int
    stacks: bool = False
    as_one_step: bool = False
    without_marks: bool = False


@dataclass(frozen=True, slots=True)
class RankSummary:
    """What a job needs of a rank.

    Attributes:
        task: The task that it is of.
        trace: The trace without its tables, but for the first activity.
        kernels: The kernel table's collectives, with their ``place`` among all kernels, and ``run_ns``, their duration
            without waiting for the kernel before.
        kernel_count: Number of all kernels.
        kernel_steps: Steps that have kernels.
        steps: The steps.
        is_marked: Whether the profiler marked them.
        late_us: How long the one step of a whole trace waited for work from before the recording; ``None`` if not.
        tf32_names: Names of kernels that ran faster than fp32 arithmetic allows.
        origin_ns: Start of the trace.
        dropped: Edges of its graph that contradict others.
        gpus: GPUs that it drives.
        lost_launches: Launches without a kernel.
    """

    task: RankTask
    trace: RankTrace
    kernels: pl.DataFrame
    kernel_count: int
    kernel_steps: pl.Series
    steps: pl.DataFrame
    is_marked: bool
    late_us: float | None
    tf32_names: tuple[str, ...]
    origin_ns: int
    dropped: int
    gpus: int
    lost_launches: int


@dataclass(frozen=True, slots=True)
class UnreadableRank:
    """A rank that can't be read.

    Attributes:
        source: Name of its trace.
        error: Why not.
    """

    source: str
    error: TraceError


def summarize_rank(task: RankTask) -> RankSummary | UnreadableRank:
    """Read a rank, write its tables, and summarise it."""
    try:
        rank, _ = read_trace(task)
    except TraceError as error:
        return UnreadableRank(task.source.name, ingest.strip_traceback(error))
    return _summarize(task, rank)


def read_trace(task: RankTask) -> tuple[RankTrace, tuple[Message, ...]]:
    """Read a rank's trace, with what the request tells of it, and return what of its times was corrected.

    Raises:
        TraceError: It can't be read.
    """
    rank = ingest.load_rank(
        task.source, task.given, cache=task.cache, memory_bytes=task.memory_bytes, stacks=task.stacks
    )
    return correct_times(_complete(rank, task))


def _summarize(task: RankTask, rank: RankTrace) -> RankSummary:
    steps = step_table.find_steps(rank, task.without, as_one=task.as_one_step)
    kernels = build_kernel_table(rank, steps, task.without)
    marks = step_table.list_step_edges(steps)
    parts = build_graph_parts(rank, kernels, marks.clear() if task.without_marks else marks, task.without)
    graph = assemble_graph(parts)
    write_rank(task.folder, StoredRank(kernels, graph, find_unexplained(graph.vertex, graph.first, parts.released)))
    run_ns = parts.run_ns[parts.nodes.n_host :]
    collectives = kernels.with_row_index("place").with_columns(run_ns=run_ns).filter(pl.col("family") == "collective")
    return RankSummary(
        task=task,
        trace=_drop_tables(rank),
        kernels=copy_table(collectives),
        kernel_count=kernels.height,
        kernel_steps=kernels["step"].drop_nulls().unique(),
        steps=steps,
        is_marked=step_table.has_profiler_steps(rank),
        late_us=_find_late_start_us(rank, steps, task.without),
        tf32_names=_find_tf32_names(kernels.with_columns(dur_ns=run_ns), task, rank),
        origin_ns=parts.nodes.origin_ns,
        dropped=graph.dropped,
        gpus=count_gpus_per_rank(kernels.with_columns(rank=0)),
        lost_launches=count_lost_launches(rank)[0],
    )


def _complete(rank: RankTrace, task: RankTask) -> RankTrace:
    """Return the rank with what the request tells of it."""
    if not correlations.RULE.is_on(task.without):
        rank = correlations.drop_ordered_ids(rank)
    model = task.model or rank.model
    return replace(rank, model=model, indices=task.indices or find_table_skews(rank.capture_facts))


def _drop_tables(rank: RankTrace) -> RankTrace:
    """Return the rank's facts: without its tables, but for the first activity.

    What the tables and the ledger tell of the recording is among the rank's doubts (:mod:`tracekit.fleet.evidence`).
    """
    empty = {name: getattr(rank, name).clear() for name in (*TABLE_NAMES, "ledger")}
    return replace(rank, **{**empty, "activities": copy_table(rank.activities.head(1))}, captured=None)


def copy_table(table: pl.DataFrame) -> pl.DataFrame:
    """Copy a table: some rows of one keep all of it in memory."""
    return pl.read_ipc(BytesIO(table.write_ipc(None).getvalue()))


def _find_late_start_us(rank: RankTrace, steps: pl.DataFrame, without: RuleNames) -> float | None:
    found = step_kinds.find_busy_start(rank, without) if step_table.is_whole_trace(steps) else None
    return found[1] / 1e3 if found else None


def _find_tf32_names(kernels: pl.DataFrame, task: RankTask, rank: RankTrace) -> tuple[str, ...]:
    gpu = task.gpu or find_recorded_gpu(rank)
    if gpu is None or not kernel_table.PRECISION_RULE.is_on(task.without):
        return ()
    return tuple(kernel_table.find_tf32_names(kernels, gpu))
