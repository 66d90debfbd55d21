"""Run rounds over all ranks of a job, and replays of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tracekit.engine import Engine
from tracekit.fleet import rounds
from tracekit.fleet.join import JoinedFleet
from tracekit.fleet.rounds import RankTarget
from tracekit.messages import Message, ProgressCallback, Template, fleets
from tracekit.replay.compressed import CompressedJob
from tracekit.replay.step_time import StepTimes

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class FleetRunner:
    """The engine that works on the ranks of a job, and what there is to say of them.

    Attributes:
        engine: Works on the ranks.
        progress: Called with what is being done, and for how many ranks it is.
        warnings: What is wrong with the traces or left out, so far.
    """

    engine: Engine
    progress: ProgressCallback
    warnings: list[Message] = field(default_factory=list)

    def run_round(self, function: Callable[[Item], Result], items: Sequence[Item], stage: Template) -> list[Result]:
        """Apply a function to each rank, and tell the progress."""
        self.progress(stage(done=0, ranks=len(items)))
        return self.engine.map(function, items, lambda done: self.progress(stage(done=done, ranks=len(items))))

    def replay(self, joined: JoinedFleet, items: Sequence[RankTarget]) -> list[StepTimes]:
        """Replay the job; return the times of all steps in each replay, as recorded first if they are measured."""
        compressed = self.run_round(rounds.compress, items, fleets.LINKING_RANKS)
        waits, arrivals = ([getattr(one, name) for one in joined.ranks] for name in ("rendezvous", "arrivals"))
        job = CompressedJob(compressed, waits, arrivals, joined.rendezvous)
        if job.dropped:
            self.warnings.append(fleets.RENDEZVOUS_DROPPED(collectives=job.dropped))
        met = [job.replay(which) for which in range(len(compressed[0].lag_ns))]
        bound = [rounds.BoundRank(item, tuple(one[own] for one in met)) for item, own in zip(items, waits, strict=True)]
        each = self.run_round(rounds.time_steps, bound, fleets.REPLAYING_RANKS)
        return [rounds.merge_steps(list(one)) for one in zip(*each, strict=True)]
