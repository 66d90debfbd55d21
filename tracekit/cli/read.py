"""Read the ranks of a job for a command."""

from collections.abc import Sequence

from tracekit import ingest
from tracekit.messages import ProgressCallback
from tracekit.trace import Trace


def read_traces(
    traces: Sequence[str],
    rank: int | None,
    no_cache: bool,
    memory: str | None,
    progress: ProgressCallback,
    stacks: bool = False,
) -> Trace:
    """Read the requested rank, by default all ranks.

    Args:
        traces: Paths and URIs from the command line.
        rank: The rank; ``None`` for all ranks.
        no_cache: Neither read nor write the cache of decoded traces.
        memory: Maximum size of the tables, such as ``2G``.
        progress: Function that shows the current stage.
        stacks: Also read Python calls.

    Raises:
        TracekitError: As ``tracekit.ingest.load``.
    """
    ranks: ingest.Ranks = None if rank is None else [rank]
    return ingest.load(traces, ranks=ranks, cache=not no_cache, memory=memory, stacks=stacks, progress=progress)
