"""Compare targets with the trace for equal work, and rank them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tracekit.messages import Message
from tracekit.messages import decisions as told
from tracekit.prediction import Prediction
from tracekit.reporting.sections.decision import Decision, TargetDecision, TraceCosts
from tracekit.reporting.sections.decision_sentences import write_decision, write_target
from tracekit.reporting.sections.figure import Figure
from tracekit.reporting.sections.ranking import rank_figures
from tracekit.reporting.sections.source import SourceSummary
from tracekit.run import MeasuredRun

PRICED_UNITS = {"tokens": 1_000_000, "samples": 1_000_000, "steps": 1_000}
"""How many units dollars are given for."""
US_PER_HOUR = 3.6e9


def build_decision(
    run: MeasuredRun, source: SourceSummary, price: float | None, targets: Sequence[Prediction]
) -> Decision | None:
    """Build the decision; None without targets.

    Args:
        run: The measured run.
        source: Its summary.
        price: Dollars for an hour of the trace's GPU; None if it isn't known.
        targets: The predictions.
    """
    if not targets:
        return None
    work = EqualWork(run, source, price)
    ranks = rank_figures(
        [work.compute_step(target) for target in targets], [target.memory.fits is False for target in targets]
    )
    decided = [work.decide(target, rank) for target, rank in zip(targets, ranks, strict=True)]
    ordered = tuple(sorted(decided, key=lambda one: (one.rank, -one.speedup.likely, one.label)))
    return Decision(work.unit, work.amount, "time", work.here, write_decision(ordered), ordered)


def forget_prices(decision: Decision) -> Decision:
    """Return the decision without prices and what follows from them; the order of the targets stays."""
    here = replace(decision.here, price=None, hourly=None, dollars=None, run_dollars=None)
    unpriced = [
        replace(one, price=None, hourly=None, dollars=None, break_even=None, run_dollars=None)
        for one in decision.targets
    ]
    targets = tuple(replace(one, sentence=write_target(one, here, decision.unit, decision.amount)) for one in unpriced)
    return replace(decision, here=here, targets=targets, sentence=write_decision(targets))


@dataclass(frozen=True)
class EqualWork:
    """Compares targets for as much work as the traced steps do.

    Attributes:
        run: The measured run.
        source: Its summary.
        price: Dollars for an hour of the trace's GPU; None if it isn't known.
    """

    run: MeasuredRun
    source: SourceSummary
    price: float | None

    @property
    def unit(self) -> str:
        """What work is counted in."""
        return self.source.batch.unit if self.source.batch else "steps"

    @property
    def amount(self) -> int:
        """Number of units that dollars are given for."""
        return PRICED_UNITS[self.unit]

    @property
    def _units_per_step(self) -> float:
        return self.source.batch.size if self.source.batch else 1.0

    @property
    def here(self) -> TraceCosts:
        """What the work costs where it was traced."""
        source, price = self.source, self.price
        hourly = None if price is None else price * source.ranks
        return TraceCosts(
            name=count_gpus(self.run.gpu.name if self.run.gpu else None, source.ranks),
            gpus=source.ranks,
            price=price,
            hourly=hourly,
            dollars=None if hourly is None else self._compute_dollars(hourly, source.step_time_us),
            run_hours=None,
            run_dollars=None,
            is_captured=source.is_captured,
        )

    def compute_step(self, target: Prediction) -> Figure:
        """Return the time for the work of one traced step, in microseconds."""
        return Figure(target.step.step_time_us, target.low_us, target.high_us).scale(1 / target.batch_ratio)

    def _compute_dollars(self, hourly: float, step_us: float) -> float:
        """Return the dollars for ``amount`` units where the work of a traced step takes so long."""
        return hourly * step_us / US_PER_HOUR / self._units_per_step * self.amount

    def decide(self, target: Prediction, rank: int) -> TargetDecision:
        """Return the figures of one target.

        Args:
            target: Its prediction.
            rank: Its rank.
        """
        step, energy = self.compute_step(target), target.energy
        speedup = step.invert().scale(self.source.step_time_us)
        hourly = None if target.price is None else target.price * target.ranks
        joules = Figure(energy.joules, energy.low_joules, energy.high_joules)
        here = self.here
        decided = TargetDecision(
            label=target.label,
            name=_name_target(target),
            gpus=target.ranks,
            setting=tuple(_describe_setting(target)),
            step_us=step.scale(target.batch_ratio),
            speedup=speedup,
            price=target.price,
            hourly=hourly,
            dollars=None if hourly is None else step.scale(self._compute_dollars(hourly, 1.0)),
            break_even=None if here.hourly is None else speedup.scale(here.hourly / target.ranks),
            run_hours=None,
            run_dollars=None,
            joules=joules.scale(target.ranks / target.batch_ratio / self._units_per_step),
            rank=rank,
            fits=target.memory.fits,
            sentence=told.TARGET_DECIDED(target=(), answers=()),
        )
        return replace(decided, sentence=write_target(decided, here, self.unit, self.amount))


def _name_target(target: Prediction) -> str:
    cluster = target.target.cluster
    return cluster.name if cluster else count_gpus(target.target.gpu.gpu.name, target.ranks)


def count_gpus(name: str | None, count: int) -> str:
    """Return the number of GPUs and their name."""
    if name is None:
        return "the measured GPU" if count == 1 else f"the {count} measured GPUs"
    return name if count == 1 else f"{count} × {name}"


def _describe_setting(target: Prediction) -> Iterator[Message]:
    """Yield what else differs from the trace."""
    if target.layout and target.layout.world_size > 1:
        yield told.LAYOUT_THERE(layout=target.layout.parallelism)
    if target.batch_ratio != 1:
        yield told.BATCH_THERE(batch_ratio=target.batch_ratio)
    if target.program.edits:
        yield told.EDITS_THERE()
