"""Write the decision in words, from its figures."""

from collections.abc import Iterator, Sequence

from tracekit.messages import Message, Value
from tracekit.messages import decisions as told
from tracekit.reporting.sections.decision import TargetDecision, TraceCosts
from tracekit.reporting.sections.figure import Figure

LEVEL_TOLERANCE = 0.01
"""Speeds that differ by less than this share are called equal."""
MOST_NAMED = 3
"""Most targets that a sentence names."""


def write_target(target: TargetDecision, here: TraceCosts, unit: str, amount: int) -> Message:
    """Write the answer for one target.

    Args:
        target: Its figures.
        here: Those of the trace.
        unit: What work is counted in.
        amount: Number of units that dollars are for.
    """
    answers = [
        _write_speed(target, here),
        *_write_cost(target, here, unit, amount),
        *_write_memory(target),
    ]
    return told.TARGET_DECIDED(target=(target.name, *target.setting), answers=answers)


def _write_speed(target: TargetDecision, here: TraceCosts) -> Message:
    if here.is_captured:
        step = target.step_us
        return told.STEP_OF_CAPTURE(step_us=step.likely, ends_us=(step.low, step.high))
    speedup = target.speedup
    if speedup.is_exact and speedup.likely == 1:
        return told.SPEED_AS_MEASURED()
    if abs(speedup.likely - 1) < LEVEL_TOLERANCE:
        return told.SPEED_LEVEL(speedup=speedup.ordered)
    if speedup.likely > 1:
        faster = told.SPEED_HIGHER if speedup.low > 1 else told.SPEED_MAYBE_HIGHER
        return faster(speedup=speedup.ordered)
    slower = told.SPEED_LOWER if speedup.high < 1 else told.SPEED_MAYBE_LOWER
    return slower(slowdown=speedup.invert().ordered)


def _write_cost(target: TargetDecision, here: TraceCosts, unit: str, amount: int) -> Iterator[Message]:
    """Yield what the target costs, as far as prices are known."""
    if target.break_even is not None and here.price:
        shown: dict[str, Value] = {
            "break_even": target.break_even.ordered,
            "here": here.name,
            "here_price": here.price,
        }
        if target.price is None:
            yield told.PAYS_BELOW(**shown)
            return
        shown |= {"price": target.price, "unit": unit.removesuffix("s")}
        more = _compare_costs(target.dollars, here.dollars)
        if more is None or more.low <= 0 <= more.high:
            yield told.COSTS_UNDECIDED(**shown)
        elif more.likely > 0:
            yield told.COSTS_MORE(**shown, more_pct=more.ordered)
        else:
            yield told.COSTS_LESS(**shown, less_pct=(-more.high, -more.likely, -more.low))
    elif target.dollars is not None and target.price is not None:
        yield told.COSTS_ALONE(price=target.price, amount=amount, units=unit, dollars=target.dollars.ordered)


def _compare_costs(there: Figure | None, here: float | None) -> Figure | None:
    """Return by how many percent the work costs more there than here; None where one cost isn't known, or nothing."""
    if there is None or not here:
        return None
    return Figure(*(100 * (dollars / here - 1) for dollars in (there.likely, there.low, there.high)))


def _write_memory(target: TargetDecision) -> Iterator[Message]:
    if target.fits is False:
        yield told.LACKS_MEMORY()
    elif target.fits is None:
        yield told.MAY_LACK_MEMORY()


def write_decision(targets: Sequence[TargetDecision]) -> Message:
    """Write the answer: that for the best target, and whether it surely is the best.

    Args:
        targets: The targets, in order of rank.
    """
    best, *others = targets
    if not others:
        return best.sentence
    level = [other for other in others if other.rank == best.rank]
    rank = (
        told.LEVEL_BY_TIME(targets=len(targets), others=_name_some(level))
        if level
        else told.FIRST_BY_TIME(targets=len(targets))
    )
    values = best.sentence.values
    answers = values["answers"]
    assert isinstance(answers, tuple)
    return told.TARGET_DECIDED(target=values["target"], answers=(*answers, rank))


def _name_some(targets: Sequence[TargetDecision]) -> list[Value]:
    named: list[Value] = [target.name for target in targets[:MOST_NAMED]]
    left = len(targets) - MOST_NAMED
    return [*named, told.MORE_TARGETS(targets=left)] if left > 0 else named
