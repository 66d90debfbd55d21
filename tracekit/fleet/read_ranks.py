"""Read the traces of all ranks of a job."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from predictors import resolve_gpu
from tracekit import ingest as sizes
from tracekit.fleet.join import find_repeats
from tracekit.fleet.runner import FleetRunner
from tracekit.fleet.summary import RankSummary, RankTask, UnreadableRank, summarize_rank
from tracekit.graph.ranks.lost import RecordedCollectives, find_lacking_ranks
from tracekit.inference_rules import select_rules
from tracekit.ingest import Inputs
from tracekit.ingest import ranks as places
from tracekit.ingest.source import ExpandedInputs, TraceSource, expand_inputs
from tracekit.messages import Message, fleets
from tracekit.models.llm import read_model_config

if TYPE_CHECKING:
    from tracekit.request.options import RunOptions

MAX_NAMED = 5
"""Unreadable ranks that are named; of further ones the number is."""


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """How ranks are read and kept.

    Attributes:
        store: Folder that all workers reach, for the ranks' tables; None for each worker's own disk.
        cache: Whether to use the cache of decoded traces.
        memory: Memory limit of the tables of the ranks that are worked on at a time, such as ``"2G"``.
        stacks: Whether to read Python calls.
    """

    store: str | None = None
    cache: bool = False
    memory: str | int | None = None
    stacks: bool = False


DEFAULT_READING: ReadingOptions = ReadingOptions()


def read_ranks(
    inputs: Inputs, request: "RunOptions", runner: FleetRunner, reading: ReadingOptions
) -> list[RankSummary]:
    """Read each rank in a worker, and return the summaries in order of rank.

    Args:
        inputs: As for :func:`tracekit.ingest.load`.
        request: What is known of the job.
        runner: Works on the ranks; ranks that can't be read are among its warnings.
        reading: How they are read.

    Raises:
        TraceError: No rank can be read, or two are of one rank.
    """
    given = expand_inputs(inputs)
    tasks = _list_tasks(given, request, runner, reading)
    found = runner.run_round(summarize_rank, tasks, fleets.READING_RANKS)
    summaries = [one for one in found if isinstance(one, RankSummary)]
    unreadable = [one for one in found if isinstance(one, UnreadableRank)]
    if not summaries:
        raise unreadable[0].error
    if unreadable:
        runner.warnings.append(_name_unreadable(unreadable, len(found)))
    summaries = _repeat_ranks(summaries, runner)
    trace = places.combine_ranks([one.trace for one in summaries])
    runner.warnings += [*given.doubts, *trace.warnings]
    order = {rank.source: place for place, rank in enumerate(trace.ranks)}
    return _leave_out_lacking(sorted(summaries, key=lambda one: order[one.trace.source]), runner)


def _leave_out_lacking(summaries: list[RankSummary], runner: FleetRunner) -> list[RankSummary]:
    """Leave out ranks that lost their collectives, as :func:`tracekit.joined_ranks.join_rank_traces` does."""
    lacking = find_lacking_ranks(
        [
            RecordedCollectives(one.trace.rank or 0, one.kernels, one.steps.height, one.lost_launches)
            for one in summaries
        ]
    )
    if lacking is None:
        return summaries
    runner.warnings.append(lacking.to_message())
    return [one for place, one in enumerate(summaries) if place not in lacking.places]


def _list_tasks(
    given: ExpandedInputs, request: "RunOptions", runner: FleetRunner, reading: ReadingOptions
) -> list[RankTask]:
    model = read_model_config(request.model_config) if request.model_config else None
    gpu = resolve_gpu(request.source_gpu).gpu if request.source_gpu else None
    memory_bytes = runner.engine.share_memory(sizes.parse_memory_size(reading.memory))
    without, indices = select_rules(request.rules_off), request.index_pattern
    return [
        RankTask(
            source=source,
            given=_select_companions(given, source),
            folder=f"{reading.store}/{place}",
            without=without,
            model=model,
            indices=indices,
            gpu=gpu,
            cache=reading.cache,
            memory_bytes=memory_bytes,
            stacks=reading.stacks,
        )
        for place, source in enumerate(given.traces)
    ]


def _repeat_ranks(summaries: list[RankSummary], runner: FleetRunner) -> list[RankSummary]:
    """Read again what the ranks together show was read wrongly alone."""
    again = [one.task for one in find_repeats(summaries)]
    if not again:
        return summaries
    by_source = {one.task.source.name: one for one in summaries}
    repeated = runner.run_round(summarize_rank, again, fleets.READING_RANKS)
    by_source |= {one.task.source.name: one for one in repeated if isinstance(one, RankSummary)}
    return list(by_source.values())


def _select_companions(given: ExpandedInputs, source: TraceSource) -> ExpandedInputs:
    """Select what was given beside the traces that may be of one of them, so that tasks stay small."""
    rank = places.parse_rank_from_name(source.name)
    told = [(one, places.parse_rank_from_name(one.name)) for one in given.execution_traces]
    own = [one for one, other in told if rank is None or other in (rank, None)]
    return given._replace(traces=[], execution_traces=own, others=[])


def _name_unreadable(unreadable: Sequence[UnreadableRank], files: int) -> Message:
    names = [PurePath(one.source).name for one in unreadable]
    shown = (*names[:MAX_NAMED], *([f"and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else ()))
    return fleets.RANKS_UNREADABLE(
        ranks=len(unreadable), files=files, names=shown, reason=unreadable[0].error.catalogue_message
    )
