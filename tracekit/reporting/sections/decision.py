"""The decision that a prediction is asked for: how fast, at what cost, and whether it pays; its ranks and its words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot, log
from typing import Annotated

from tracekit.messages import Message, Value
from tracekit.messages import predictions as told
from tracekit.prediction.question import RankBy, WholeRun
from tracekit.reporting.columns import Column
from tracekit.reporting.figure import Figure


@dataclass(frozen=True, slots=True)
class TargetDecision:
    """What the traced work takes and costs on one target.

    Attributes:
        name: The same as people say it: ``8 × NVIDIA H100 SXM5 80 GB``.
        setting: What else differs from the trace: the layout, the batch, what-if edits.
        step_us: Step time.
        mean_us: Time for the work of one traced step, the mean one.
        same_host_speedup: The same with a CPU like the trace's; null where `speedup` has it or the CPU hardly matters.
        hourly: Dollars for an hour of all rented GPUs.
        gpu_hours: Hours of all rented GPUs together for ``amount`` units, by the mean step.
    """

    label: Annotated[str, Column("The GPU or cluster.", name="target")]
    name: str
    gpus: Annotated[int, Column("GPUs in use.")]
    rented: Annotated[int, Column("GPUs that dollars count: whole instances of a cloud.")]
    setting: tuple[Message, ...]
    step_us: Figure
    mean_us: Figure
    speedup: Annotated[Figure | None, Column("Throughput relative to the trace; blank of a program that never ran.")]
    same_host_speedup: Figure | None
    price: Annotated[float | None, Column("Dollars for an hour of one GPU.")]
    hourly: float | None
    dollars: Annotated[Figure | None, Column("Dollars for a million tokens or samples, or 1,000 steps.")]
    break_even: Annotated[
        Figure | None, Column("Dollars for an hour of one GPU below which the work is cheaper there.")
    ]
    gpu_hours: Figure
    run_hours: Annotated[Figure | None, Column("Hours for the whole job.")]
    run_dollars: Annotated[Figure | None, Column("Dollars for the whole job.")]
    joules: Annotated[Figure | None, Column("Joules for one token, sample or step on all GPUs in use.")]
    rank: Annotated[int, Column("One more than the number of targets that are surely better.")]
    fits: Annotated[bool | None, Column("Whether a rank fits into memory; blank if unknown.", name="fits_in_memory")]
    sentence: Annotated[Message, Column("The same in words.", name="answer")]


@dataclass(frozen=True, slots=True)
class TraceCosts:
    """What the work takes and costs where it was traced.

    Attributes:
        name: Number and name of the GPUs.
        gpus: Number of GPUs.
        rented: GPUs that have to be rented for that, and that dollars count.
        price: Dollars for an hour of one GPU; null if it wasn't given.
        hourly: Dollars for an hour of all rented GPUs.
        gpu_hours: Hours of all rented GPUs together for ``amount`` units, by the mean step.
        dollars: Dollars for ``amount`` units.
        run_hours: Hours for the whole run.
        run_dollars: Dollars for the whole run.
        mean_us: Mean step time.
        is_captured: Whether nothing ran there, as of a captured program: then there are no dollars and no hours.
    """

    name: str
    gpus: int
    rented: int
    price: float | None
    hourly: float | None
    gpu_hours: float
    dollars: float | None
    run_hours: float | None
    run_dollars: float | None
    mean_us: float
    is_captured: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """The targets, compared with the trace for equal work.

    Attributes:
        unit: What work is counted in: ``tokens``, ``samples``, or ``steps`` as traced.
        amount: Number of units that ``dollars`` are for.
        ranked_by: What the targets are ranked by: ``time``, ``dollars``, ``tokens-per-dollar`` or ``energy``.
        run_amount: Number of units of the whole run; null if it wasn't given.
        run_unit: Its unit.
        prices_date: Day of the file that prices are from.
        here: What the work costs where it was traced.
        sentence: The answer.
        targets: The targets in order of rank, then of the likely figure.
    """

    unit: str
    amount: int
    ranked_by: str
    run_amount: float | None
    run_unit: str | None
    prices_date: str | None
    here: TraceCosts
    sentence: Message
    targets: tuple[TargetDecision, ...]


def rank_figures(figures: Sequence[Figure | None], is_excluded: Sequence[bool]) -> list[int]:
    """Return the rank of each of some figures, of which the lowest is the best: one more than the surely better ones.

    Two figures share a rank where neither is surely better. So ranks don't depend on the order of the figures, and one
    with a wide interval has the best rank that it may have.

    Unknown figures rank behind all known ones; excluded ones, such as of GPUs with too little memory, behind all
    others.
    """
    groups = [(excluded, figure is None) for figure, excluded in zip(figures, is_excluded, strict=True)]
    entries = list(zip(groups, figures, strict=True))
    return [1 + sum(_is_surely_better(other, one) for other in entries) for one in entries]


def _is_surely_better(
    one: tuple[tuple[bool, bool], Figure | None], other: tuple[tuple[bool, bool], Figure | None]
) -> bool:
    (group, figure), (other_group, other_figure) = one, other
    if figure is None or other_figure is None or group != other_group:
        return group < other_group
    return is_surely_less(figure, other_figure)


def is_surely_less(one: Figure, other: Figure) -> bool:
    """Return whether one figure is less than another by more than their intervals leave open.

    The ratio of two log-normal figures with independent errors has the hypotenuse of both half-widths. Errors of two
    targets are predicted from the same measured step by the same model, hence positively correlated, which makes the
    ratio more certain than that: independence is the careful assumption.
    """
    if one.likely >= other.likely:
        return False
    if min(one.low, other.low) <= 0:
        return one.high < other.low
    return log(other.likely / one.likely) > hypot(log(one.high / one.likely), log(other.likely / other.low))


LEVEL_TOLERANCE = 0.01
"""Speeds that differ by less than this share are called equal."""
MIN_RATIO_IN_TIMES = 2.0
"""Least ratio of costs that is said as one; smaller ones are said in percent."""
MOST_NAMED = 3
"""Most targets that a sentence names."""
RANK_TEMPLATES = {
    RankBy.TIME: (told.FIRST_BY_TIME, told.LEVEL_BY_TIME),
    RankBy.DOLLARS: (told.FIRST_BY_DOLLARS, told.LEVEL_BY_DOLLARS),
    RankBy.TOKENS_PER_DOLLAR: (told.FIRST_BY_DOLLARS, told.LEVEL_BY_DOLLARS),
    RankBy.ENERGY: (told.FIRST_BY_ENERGY, told.LEVEL_BY_ENERGY),
}
"""For each figure: what is said of a target that is surely the best, and of one that may be."""


def write_target(
    target: TargetDecision, here: TraceCosts, unit: str, amount: int, whole_run: WholeRun | None
) -> Message:
    """Write the answer for one target.

    Dollars are for ``amount`` units.
    """
    answers = [
        _write_speed(target, here),
        *_write_speed_with_same_cpu(target),
        *_write_cost(target, here, unit, amount),
        *_write_rent(target),
        *(_write_run(target, here, whole_run) if whole_run else ()),
        *_write_memory(target),
    ]
    return told.TARGET_DECIDED(target=(target.name, *target.setting), answers=answers)


def _write_speed(target: TargetDecision, here: TraceCosts) -> Message:
    if here.is_captured:
        step = target.step_us
        return told.STEP_OF_CAPTURE(step_us=step.likely, ends_us=(step.low, step.high, step.likely))
    speedup = target.speedup
    assert speedup is not None
    if speedup.is_exact and speedup.likely == 1:
        return told.SPEED_AS_MEASURED()
    if abs(speedup.likely - 1) < LEVEL_TOLERANCE:
        return told.SPEED_LEVEL(speedup=speedup.ordered)
    if speedup.likely > 1:
        faster = told.SPEED_HIGHER if speedup.low > 1 else told.SPEED_MAYBE_HIGHER
        return faster(speedup=speedup.ordered)
    slower = told.SPEED_LOWER if speedup.high < 1 else told.SPEED_MAYBE_LOWER
    return slower(slowdown=speedup.invert().ordered)


def _write_speed_with_same_cpu(target: TargetDecision) -> Iterator[Message]:
    """Yield how fast the target is if its CPU is like the trace's, where that makes the answer narrower."""
    there, whole = target.same_host_speedup, target.speedup
    if there is None:
        return
    if whole is not None and whole.likely <= 1 - LEVEL_TOLERANCE:  # in the words of _write_speed
        yield told.SLOWNESS_WITH_SAME_CPU(slowdown=there.invert().ordered)
    else:
        yield told.SPEED_WITH_SAME_CPU(speedup=there.ordered)


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
        ratio = target.break_even.invert(target.price) if target.price else None
        if ratio is None or ratio.low <= 1 <= ratio.high:
            yield told.COSTS_UNDECIDED(**shown)
        elif ratio.likely >= MIN_RATIO_IN_TIMES:
            yield told.COSTS_TIMES(**shown, ratio=ratio.ordered)
        elif ratio.likely > 1:
            yield told.COSTS_MORE(**shown, more_pct=[100 * (end - 1) for end in ratio.ordered])
        else:
            yield told.COSTS_LESS(**shown, less_pct=[100 * (1 - end) for end in reversed(ratio.ordered)])
    elif target.dollars is not None and target.price is not None:
        yield told.COSTS_ALONE(price=target.price, amount=amount, units=unit, dollars=target.dollars.ordered)


def _write_rent(target: TargetDecision) -> Iterator[Message]:
    """Yield which GPUs dollars count, where there are several."""
    if target.hourly is None:
        return
    if target.rented != target.gpus:
        yield told.RENTED_WHOLE(hourly=target.hourly, rented=target.rented, used=target.gpus)
    elif target.rented > 1:
        yield told.RENTED_GPUS(hourly=target.hourly, rented=target.rented)


def _write_run(target: TargetDecision, here: TraceCosts, whole_run: WholeRun) -> Iterator[Message]:
    """Yield how long the whole run takes, and what it costs."""
    if target.run_hours is None:
        return
    work: dict[str, Value] = {"amount": whole_run.amount, "units": whole_run.unit}
    if here.run_hours is None:
        yield told.RUN_TAKES_THERE(**work, hours=target.run_hours.ordered)
    else:
        yield told.RUN_TAKES(**work, hours=target.run_hours.ordered, here_hours=here.run_hours)
    if target.run_dollars is not None and here.run_dollars is not None:
        yield told.RUN_COSTS(dollars=target.run_dollars.ordered, here_dollars=here.run_dollars)
    elif target.run_dollars is not None:
        yield told.RUN_COSTS_THERE(dollars=target.run_dollars.ordered)


def _write_memory(target: TargetDecision) -> Iterator[Message]:
    if target.fits is False:
        yield told.LACKS_MEMORY()
    elif target.fits is None:
        yield told.MAY_LACK_MEMORY()


def write_decision(
    targets: Sequence[TargetDecision], here: TraceCosts, rank_by: RankBy, prices_date: str | None
) -> Message:
    """Write the answer: that for the best target, and whether it surely is the best.

    The targets are in order of rank.
    """
    best, *others = targets
    values = best.sentence.values
    answers = values["answers"]
    assert isinstance(answers, tuple)
    stay = _write_stay(best, here, rank_by)
    more = [
        *([stay] if stay else [_write_rank(best, others, rank_by)] if others else []),
        *([] if not others or rank_by.needs_prices else _write_cheapest(targets, here)),
        *([told.PRICES_DATED(date=prices_date)] if prices_date else []),
    ]
    return told.TARGET_DECIDED(target=values["target"], answers=(*answers, *more))


def _write_stay(best: TargetDecision, here: TraceCosts, rank_by: RankBy) -> Message | None:
    """Write that the work is best done where it was traced; None where the best target is likely better."""
    if rank_by is RankBy.TIME and best.speedup is not None:
        figure, own, sure, likely = best.mean_us, here.mean_us, told.STAY_FASTEST, told.STAY_LIKELY_FASTEST
    elif rank_by.needs_prices and best.hourly is not None and here.hourly is not None:
        figure, own = best.mean_us.scale(best.hourly), here.hourly * here.mean_us
        sure, likely = told.STAY_CHEAPEST, told.STAY_LIKELY_CHEAPEST
    else:
        return None
    if figure.likely <= (1 + LEVEL_TOLERANCE) * own:
        return None
    return (sure if figure.low > own else likely)(here=here.name)


def _write_rank(best: TargetDecision, others: Sequence[TargetDecision], rank_by: RankBy) -> Message:
    """Write whether a target is surely the best by the figure that was asked for."""
    level = [other.name for other in others if other.rank == best.rank]
    first, shared = RANK_TEMPLATES[rank_by]
    count = 1 + len(others)
    return shared(targets=count, others=name_some(level, MOST_NAMED)) if level else first(targets=count)


def _write_cheapest(targets: Sequence[TargetDecision], here: TraceCosts) -> Iterator[Message]:
    """Yield where the work costs least, of at least two places with a price and enough memory."""
    # Of equal work: what is open about the work of a step is so everywhere.
    costs = {
        one.name: one.mean_us.scale(one.hourly) for one in targets if one.hourly is not None and one.fits is not False
    }
    if here.hourly is not None:
        costs[here.name] = Figure.from_exact(here.hourly * here.mean_us)
    if len(costs) < 2:
        return
    ranks = rank_figures([*costs.values()], [False] * len(costs))
    least = [name for name, rank in zip(costs, ranks, strict=True) if rank == 1]
    if len(least) == 1:
        yield told.CHEAPEST(place=least[0], places=len(costs))
    else:
        yield told.CHEAPEST_OPEN(places=name_some(least, MOST_NAMED))


def name_some(names: Sequence[str], most: int) -> list[Value]:
    """Return the names; of more than ``most`` of them the first, and how many more there are."""
    left = len(names) - most
    return [*names[:most], told.MORE_TARGETS(targets=left)] if left > 0 else [*names]
