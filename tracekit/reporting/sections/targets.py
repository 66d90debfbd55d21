"""The targets: compared with the trace for equal work, after each what-if edit, and refused."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from typing import Annotated

from tracekit.format import format_percent
from tracekit.messages import Message
from tracekit.messages import predictions as told
from tracekit.prediction import RefusedTarget
from tracekit.prediction.critical_batch import compute_work_ratio
from tracekit.prediction.model import PredictedStep, scale_to_mean_step
from tracekit.prediction.question import Question, RankBy, WholeRun
from tracekit.reporting.columns import Column
from tracekit.reporting.figure import Figure
from tracekit.reporting.sections.decision import (
    LEVEL_TOLERANCE,
    Decision,
    TargetDecision,
    TraceCosts,
    rank_figures,
    write_decision,
    write_target,
)
from tracekit.reporting.sections.step import SourceSummary
from tracekit.whatif import WhatIfResult

PRICED_UNITS = {"tokens": 1_000_000, "samples": 1_000_000, "steps": 1_000}
"""How many units dollars are given for."""
US_PER_HOUR = 3.6e9


def build_decision(
    source: SourceSummary,
    targets: Sequence[PredictedStep],
    question: Question,
    *,
    edited: bool = False,
    prices_date: str | None = None,
) -> Decision | None:
    """Build the decision; None without targets."""
    if not targets:
        return None
    rank_by = question.resolve(is_priced=all(target.price is not None for target in targets))
    work = EqualWork(source, replace(question, rank_by=rank_by), edited)
    figures = [work.compute_ranked_figure(target) for target in targets]
    ranks = rank_figures(figures, [target.memory.fits is False for target in targets])
    order = sorted(zip(ranks, figures, targets, strict=True), key=lambda row: (row[0], *_order_level(row[1], row[2])))
    decided = tuple(work.decide(target, rank) for rank, _, target in order)
    return Decision(
        unit=work.unit,
        amount=work.amount,
        ranked_by=rank_by.value,
        run_amount=question.whole_run.amount if question.whole_run else None,
        run_unit=question.whole_run.unit if question.whole_run else None,
        prices_date=prices_date,
        here=work.here,
        sentence=write_decision(decided, work.here, rank_by, prices_date),
        targets=decided,
    )


MAX_FIRST_WIDTH = 3.0
"""Highest over lowest end of an interval from which on a target stands behind the surer ones of its rank."""


def _order_level(figure: Figure | None, target: PredictedStep) -> tuple[bool, float, float, float, str]:
    """Order targets of one rank by the likely figure; those that are about equal by price, then the surest first.

    Those of which hardly anything is known stand behind.
    """
    is_wide = figure is not None and _is_wide(figure)
    level = round(log(figure.likely) / LEVEL_TOLERANCE) if figure and figure.likely > 0 else 0
    return is_wide, level, inf if target.price is None else target.price, target.high_us, target.label


def forget_prices(decision: Decision) -> Decision:
    """Return a decision without prices and dollars: in the same order, or by time if it is ranked by dollars."""
    here = replace(decision.here, price=None, hourly=None, dollars=None, run_dollars=None)
    run = WholeRun(decision.run_amount, decision.run_unit) if decision.run_amount and decision.run_unit else None
    targets = tuple(
        replace(target, sentence=write_target(target, here, decision.unit, decision.amount, run))
        for one in decision.targets
        for target in [replace(one, price=None, hourly=None, dollars=None, break_even=None, run_dollars=None)]
    )
    rank_by = RankBy(decision.ranked_by)
    if rank_by.needs_prices:
        rank_by, targets = RankBy.TIME, _rank_by_time(targets)
    sentence = write_decision(targets, here, rank_by, None)
    return replace(decision, ranked_by=rank_by.value, here=here, targets=targets, sentence=sentence, prices_date=None)


def _rank_by_time(targets: Sequence[TargetDecision]) -> tuple[TargetDecision, ...]:
    ranks = rank_figures([one.mean_us for one in targets], [one.fits is False for one in targets])
    ranked = (replace(one, rank=rank) for one, rank in zip(targets, ranks, strict=True))
    return tuple(sorted(ranked, key=lambda one: (one.rank, _is_wide(one.mean_us), one.mean_us.likely, one.label)))


def _is_wide(figure: Figure) -> bool:
    return figure.high > MAX_FIRST_WIDTH * figure.low


@dataclass(frozen=True)
class EqualWork:
    """Compares targets for the work that the traced steps do.

    Attributes:
        edited: Whether the predictions include what-if edits.
    """

    source: SourceSummary
    question: Question
    edited: bool

    @property
    def unit(self) -> str:
        """What work is counted in."""
        return self.source.batch.unit if self.source.batch else "steps"

    @property
    def amount(self) -> int:
        """Number of units that dollars are given for."""
        return PRICED_UNITS[self.unit]

    @property
    def _steps_per_amount(self) -> Figure:
        batch = self.source.batch
        if batch is None:
            return Figure.from_exact(self.amount)
        return Figure(batch.size, *batch.ends).invert(self.amount)

    @property
    def _steps_of_run(self) -> Figure | None:
        """Number of traced steps that do the whole run's work."""
        run = self.question.whole_run
        if run is None:
            return None
        steps = run.count_steps(self.source.batch)
        if run.unit == "steps" or not self.source.batch:
            return Figure.from_exact(steps)
        return Figure(self.source.batch.size, *self.source.batch.ends).invert(self.source.batch.size * steps)

    @property
    def here(self) -> TraceCosts:
        """What the work costs where it was traced."""
        source = self.source
        price = None if source.is_captured else source.price
        hourly = None if price is None else price * source.rented
        step_hours, run_steps = source.mean_us / US_PER_HOUR, self._steps_of_run
        run_hours = None if run_steps is None or source.is_captured else run_steps.likely * step_hours
        gpu_hours = source.rented * step_hours * self._steps_per_amount.likely
        return TraceCosts(
            name=count_gpus(source.gpu_name, source.gpus),
            gpus=source.gpus,
            rented=source.rented,
            price=price,
            hourly=hourly,
            gpu_hours=gpu_hours,
            dollars=None if price is None else price * gpu_hours,
            run_hours=run_hours,
            run_dollars=None if hourly is None or run_hours is None else hourly * run_hours,
            mean_us=source.mean_us,
            is_captured=source.is_captured,
        )

    def compute_ranked_figure(self, target: PredictedStep) -> Figure | None:
        """Return the figure by which a target is ranked, the lower the better; None where it isn't known."""
        if self.question.rank_by is RankBy.ENERGY:
            return self._compute_step_joules(target)
        if self.question.needs_prices:
            return None if target.price is None else self._compute_mean(target).scale(target.price * target.rented)
        return self._compute_step(target)

    def _compute_step(self, target: PredictedStep) -> Figure:
        """Return the time for the work of one traced step, the median one, in microseconds."""
        return Figure(target.step.step_time_us, target.low_us, target.high_us).scale(1 / target.batch_ratio)

    def _compute_mean(self, target: PredictedStep) -> Figure:
        """Return the time for the work of one traced step, the mean one, in microseconds."""
        return Figure(target.step.mean_us, target.mean_low_us, target.mean_high_us).scale(1 / target.batch_ratio)

    def _compute_step_joules(self, target: PredictedStep) -> Figure:
        """Return the energy for the work of one traced step, the mean one, on all GPUs in use."""
        energy = scale_to_mean_step(target.energy, target.step)
        drawn = Figure(energy.joules, energy.low_joules, energy.high_joules)
        return drawn.scale(target.gpus / target.batch_ratio)

    def decide(self, target: PredictedStep, rank: int) -> TargetDecision:
        """Return the figures of one target, and its answer."""
        here, step, mean = self.here, self._compute_step(target), self._compute_mean(target)
        step_hours, run_steps = mean.scale(1 / US_PER_HOUR), self._steps_of_run
        speedup = None if here.is_captured else step.invert(self.source.step_time_us)
        hourly = None if target.price is None else target.price * target.rented
        gpu_hours = step_hours.scale(target.rented).multiply(self._steps_per_amount)
        work = self._compute_work_ratio(target)
        run_hours = None if run_steps is None else step_hours.multiply(run_steps).scale(work)
        of_mean = mean.invert(self.source.mean_us)
        decided = TargetDecision(
            label=target.label,
            name=name_target(target),
            gpus=target.gpus,
            rented=target.rented,
            setting=tuple(self._describe_setting(target)),
            step_us=step.scale(target.batch_ratio),
            mean_us=mean,
            speedup=speedup,
            same_host_speedup=self._compare_on_same_host(target),
            price=target.price,
            hourly=hourly,
            dollars=None if target.price is None else gpu_hours.scale(target.price),
            break_even=None if here.hourly is None else of_mean.scale(here.hourly / target.rented),
            gpu_hours=gpu_hours,
            run_hours=run_hours,
            run_dollars=None if hourly is None or run_hours is None else run_hours.scale(hourly),
            joules=self._compute_step_joules(target).multiply(self._steps_per_amount).scale(1 / self.amount),
            rank=rank,
            fits=target.memory.fits,
            sentence=told.TARGET_DECIDED(target=(), answers=()),
        )
        return replace(decided, sentence=write_target(decided, here, self.unit, self.amount, self.question.whole_run))

    def _compute_work_ratio(self, target: PredictedStep) -> float:
        """Return how many times the traced batch's work the target's batch needs to the same loss."""
        batch, critical = self.source.batch, self.question.critical_batch
        if batch is None or critical is None:
            return 1.0
        return compute_work_ratio(batch.size * target.batch_ratio, batch.size, critical)

    def _compare_on_same_host(self, target: PredictedStep) -> Figure | None:
        """Return the throughput relative to the trace if the target's CPU is like the trace's."""
        there = target.same_host
        if there is None:
            return None
        step = Figure(there.step_time_us, there.low_us, there.high_us).scale(1 / target.batch_ratio)
        return step.invert(self.source.step_time_us)

    def _describe_setting(self, target: PredictedStep) -> Iterator[Message]:
        """Yield what else differs from the trace."""
        is_plain = target.ranks == self.source.ranks and target.layout is not None and target.layout.dp == target.ranks
        if target.layout and target.layout.world_size > 1 and not is_plain:
            yield told.LAYOUT_THERE(layout=target.layout.parallelism)
        if target.batch_ratio != 1:
            batch = told.BATCH_OF_PROGRAM if self.source.is_captured else told.BATCH_THERE
            yield batch(batch_ratio=target.batch_ratio)
        if (work := self._compute_work_ratio(target)) != 1 and self.source.batch:
            units = self.source.batch.size * target.batch_ratio
            yield told.WORK_TO_LOSS(ratio=work, unit=self.unit, batch=units)
        if self.edited:
            yield told.EDITS_THERE()


def name_target(target: PredictedStep) -> str:
    """Return the name of a target as people say it, and how much of a cluster the job leaves unused."""
    if target.cluster_gpus is None:
        return count_gpus(target.name, target.gpus)
    used = f"{target.gpus:,} of the {target.cluster_gpus:,} GPUs of "
    return f"{used if target.gpus < target.cluster_gpus else ''}{target.name}"


def count_gpus(name: str | None, count: int) -> str:
    """Return the number of GPUs and their name; that of the trace's GPUs may not be known."""
    if name is None:
        return "the measured GPU" if count == 1 else f"the {count} measured GPUs"
    return name if count == 1 else f"{count} × {name}"


@dataclass(frozen=True, slots=True)
class EditSaving:
    """One edit, on top of those before it; the savings add up.

    Attributes:
        predicted_us: The same on each target, in the report's order of targets; ``None`` if it can't be predicted.
    """

    text: Annotated[str, Column("The edit as it was written.", "edit")]
    description: Annotated[Message, Column("What it did.")]
    touched: Annotated[int, Column("How many kernels, calls or edges of the graph it changed.")]
    saving_us: Annotated[
        float, Column("By how much it shortens the measured step; negative for one that costs.", "saves")
    ]
    step_time_us: Annotated[float, Column("The measured step with it and those before it.", "step")]
    predicted_us: tuple[float | None, ...]
    mfu: Annotated[
        float | None, Column("MFU of the measured step with it and those before it.", "MFU", format_percent)
    ] = None


FLOPS_CHANGING_EDITS = ("remove(", "tables(")
"""Edits after which the step has other operations, so that its MFU isn't known."""


def build_edit_savings(
    what_if: WhatIfResult | None,
    after_edits: Sequence[Sequence[float | None]],
    step_us: float = 0.0,
    mfu: float | None = None,
) -> tuple[EditSaving, ...]:
    """Build the savings of the edits in order.

    Args:
        what_if: The edits.
        after_edits: For each edit, the steps on the targets; empty without predictions.
        step_us: The measured step without edits.
        mfu: Its MFU in percent; ``None`` where it isn't known.
    """
    if what_if is None:
        return ()
    if any(edit.text.startswith(FLOPS_CHANGING_EDITS) for edit in what_if.edits):
        mfu = None
    predicted = after_edits or [()] * len(what_if.edits)
    return tuple(
        EditSaving(
            text=edit.text,
            description=edit.description,
            touched=edit.touched,
            saving_us=edit.saving_us,
            step_time_us=edit.step_time_us,
            predicted_us=tuple(steps),
            mfu=mfu * step_us / edit.step_time_us if mfu is not None and edit.step_time_us else None,
        )
        for edit, steps in zip(what_if.edits, predicted, strict=True)
    )


@dataclass(frozen=True, slots=True)
class RefusedStep:
    """A target on which the step can't be predicted.

    Attributes:
        target: Name of the cluster, or of the GPU.
        reason: Why not, one sentence.
        hint: What to try.
    """

    target: str
    reason: str
    hint: str


def build_refused_steps(refused: Sequence[RefusedTarget]) -> tuple[RefusedStep, ...]:
    """Build the refused targets."""
    return tuple(RefusedStep(one.label, one.error.message, one.error.hint) for one in refused)
