"""What a verb reads: the ranks of the job that was given."""

from collections.abc import Callable, Sequence

from tracekit import ingest
from tracekit.trace import Trace


def read(
    traces: Sequence[str],
    rank: int | None,
    no_cache: bool,
    memory: str | None,
    progress: Callable[[str], None],
    stacks: bool = False,
) -> Trace:
    """Read the rank asked for, by default all.

    Args:
        traces: What was given on the command line.
        rank: The rank.
        no_cache: Decode anew, and keep nothing.
        memory: The most that the tables may take.
        progress: Shows the current stage.
        stacks: Read Python's calls too.

    Raises:
        TracekitError: As ``tracekit.ingest.load``.
    """
    ranks: ingest.Ranks = None if rank is None else [rank]
    return ingest.load(traces, ranks=ranks, cache=not no_cache, memory=memory, stacks=stacks, progress=progress)
