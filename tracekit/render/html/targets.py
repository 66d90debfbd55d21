"""Rows of the page's table of targets, and what its script needs to recompute costs at other prices."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log

from predictors import PredictorError, load_gpu
from tracekit.messages import predictions as told
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.question import RankBy
from tracekit.reporting.model import TargetsReport
from tracekit.reporting.sections.decision import Decision, TargetDecision
from tracekit.reporting.sections.decision_sentences import MIN_RATIO_IN_TIMES

MAX_FIRST_TARGETS = 3
"""Targets, best first, whose columns tables show before a reader chooses others."""
COST_ANSWERS = (
    told.COSTS_MORE,
    told.COSTS_TIMES,
    told.COSTS_LESS,
    told.COSTS_UNDECIDED,
    told.COSTS_ALONE,
    told.PAYS_BELOW,
)
"""The answers that other prices change."""


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One target.

    Attributes:
        id: Stable identifier within the page.
        decision: What the work takes and costs there.
        step: The predicted step.
        maker: Vendor and architecture; empty of a GPU that tracekit doesn't know.
        spread_pct: Half of the interval's width, percent of the likely step.
        low_place: Where the interval begins, percent of the table's axis of times.
        width: How long it is, percent of that.
        likely_place: Where the likely step is.
    """

    id: str
    decision: TargetDecision
    step: PredictedStep
    maker: str
    spread_pct: float
    low_place: float
    width: float
    likely_place: float


@dataclass(frozen=True, slots=True)
class TimeScale:
    """A logarithmic axis on which all intervals have a place: very slow targets leave room for the others."""

    low_us: float
    high_us: float

    def locate(self, time_us: float) -> float:
        """Return the place of a time, in percent of the axis."""
        return 100 * log(time_us / self.low_us) / log(self.high_us / self.low_us)


def build_target_rows(report: TargetsReport) -> list[TargetRow]:
    """Build the rows in order of rank; none without targets."""
    if report.decision is None:
        return []
    scale = find_time_scale(report)
    steps = {target.label: target for target in report.targets}
    return [_build_row(report, one, steps[one.label], scale) for one in report.decision.targets if one.label in steps]


def find_time_scale(report: TargetsReport) -> TimeScale:
    """Return the axis that holds the measured step and all intervals."""
    here_us = [report.source.step_time_us] * (not report.source.is_captured)
    times = [*here_us, *(us for one in report.targets for us in (one.low_us, one.high_us))]
    positive = [us for us in times if us > 0] or [1.0]
    return TimeScale(min(positive) / 1.1, max(positive) * 1.1)


def list_first_targets(report: TargetsReport) -> list[str]:
    """List the best targets, whose columns tables show before a reader chooses others."""
    return [one.label for one in report.decision.targets[:MAX_FIRST_TARGETS]] if report.decision else []


def _build_row(report: TargetsReport, decision: TargetDecision, step: PredictedStep, scale: TimeScale) -> TargetRow:
    low_place = scale.locate(step.low_us or scale.low_us)
    return TargetRow(
        id=f"target-{decision.label}",
        decision=decision,
        step=step,
        maker=_name_maker(step.gpu),
        spread_pct=50 * (step.high_us - step.low_us) / (step.step.step_time_us or 1.0),
        low_place=low_place,
        width=scale.locate(step.high_us or scale.low_us) - low_place,
        likely_place=scale.locate(step.step.step_time_us or scale.low_us),
    )


def _name_maker(gpu: str) -> str:
    try:
        known = load_gpu(gpu)
    except PredictorError:
        return ""
    return f"{known.vendor} {known.architecture}"


def describe_pricing(report: TargetsReport, rows: list[TargetRow]) -> dict[str, object] | None:
    """Return what the page's script needs to recompute costs; None without targets."""
    decision = report.decision
    if decision is None:
        return None
    here = decision.here
    return {
        "unit": decision.unit.removesuffix("s"),
        "units": decision.unit,
        "amount": decision.amount,
        "is_ranked_by_cost": RankBy(decision.ranked_by).needs_prices,
        "min_ratio_in_times": MIN_RATIO_IN_TIMES,
        "answers": {template.code: template.text for template in COST_ANSWERS},
        "here": {
            "name": here.name,
            "price": here.price,
            "rented": here.rented,
            "gpu_hours": here.gpu_hours,
        },
        "targets": list(_describe_targets(decision, rows)),
    }


def _describe_targets(decision: Decision, rows: list[TargetRow]) -> Iterator[dict[str, object]]:
    for row in rows:
        yield {
            "id": row.id,
            "name": row.decision.name,
            "rented": row.decision.rented,
            "fits": row.step.memory.fits,
            "price": row.decision.price,
            "gpu_hours": row.decision.gpu_hours.ordered,
            "speedup": row.decision.speedup.ordered if row.decision.speedup else None,
        }
