"""Which collectives a job would have in another layout that its trace doesn't hold."""

from collections.abc import Callable

from tracekit.prediction.added import Added
from tracekit.prediction.copies import with_exchange, with_exchange_of_experts
from tracekit.prediction.dispatch import with_dispatch
from tracekit.prediction.layout import Layout, LayoutError, shares_experts, trains
from tracekit.prediction.reductions import with_reductions
from tracekit.prediction.scatters import with_scatters, with_scatters_only
from tracekit.prediction.shards import with_shards, with_shards_of_experts
from tracekit.replay.run import Run

Adder = Callable[[Run], Added]


def lacking(run: Run, old: Layout, new: Layout) -> tuple[Adder, ...]:
    """What puts them into a run, in the order in which it has to be done.

    Args:
        run: The measured run.
        old: The trace's layout.
        new: Another one.

    Raises:
        LayoutError: An inference is to share out its parameters.
    """
    if new.sharded and not old.sharded and not trains(run):
        raise LayoutError("what FSDP gathers in inference isn't known:", "leave out --fsdp.")
    parts: tuple[Adder, ...] = (with_reductions,) if old.tp == 1 < new.tp else ()
    if shares_experts(old, new):
        parts = (*parts, with_dispatch)
    if old.sharded and old.pp == 1 < new.pp:
        return (*parts, with_scatters_only)
    if not (old.dp == 1 < new.dp and trains(run)):
        return parts
    if new.sharded and new.pp > 1:
        return (*parts, with_scatters)
    whole, of_experts = with_exchange, with_exchange_of_experts
    if new.sharded:
        whole, of_experts = with_shards, with_shards_of_experts
    return (*parts, of_experts if shares_experts(old, new) else whole)


def with_all(run: Run, adders: tuple[Adder, ...]) -> tuple[Run, tuple[str, ...]]:
    """A run with what several add to it, and what each of them assumed.

    Args:
        run: The measured run.
        adders: As :func:`lacking` gives them.

    Raises:
        LayoutError: The trace doesn't tell what has to be added, or several ranks were read.
    """
    if len(run.ranks) > 1:
        raise LayoutError(
            "collectives can't be inserted into several ranks that were read together:", "give the trace of one."
        )
    notes: list[str] = []
    for adder in adders:
        added = adder(run)
        run = added.run
        notes.append(added.note)
    return run, tuple(notes)
