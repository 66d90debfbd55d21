"""What tables and sentences tell of the measured step and of those on targets."""

from collections.abc import Iterator
from dataclasses import replace

from tracekit.format import format_number, format_quantity
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.model import PredictedStep
from tracekit.reporting.model import Report, TargetsReport
from tracekit.reporting.sections.source import SourceSummary

MOST_DETAILED_TARGETS = 6
"""Most targets that an output which grows with each shows in detail."""


def format_fit(memory: MemoryFit) -> str:
    """Format for a table column whether a rank fits into memory."""
    return {True: "yes", False: "no", None: "?"}[memory.fits]


def format_rank(report: TargetsReport, target: PredictedStep) -> str:
    """Format the rank of one of several targets for a table column; ``2=`` is shared."""
    ranks = {one.label: one.rank for one in report.decision.targets} if report.decision else {}
    rank = ranks[target.label]
    return f"{rank}=" if list(ranks.values()).count(rank) > 1 else str(rank)


def format_speedup(speedup: float | None, sign: str = "x") -> str:
    """Format how many times as fast a target is for a table column; blank where nothing is compared."""
    return "" if speedup is None else f"{format_number(speedup)}{sign}"


def is_per_sample(report: TargetsReport) -> bool:
    """Return whether a target's step has another number of samples, so that times per sample are compared."""
    return any(target.batch_ratio != 1 for target in report.targets)


def has_prices(report: TargetsReport) -> bool:
    """Return whether a price of the trace's GPU or of a target's GPU was given."""
    return any(price is not None for price in (report.source.price, *(target.price for target in report.targets)))


def describe_step_samples(target: PredictedStep) -> Iterator[str]:
    """Yield a note if a target's step has another number of samples than the source's."""
    if target.batch_ratio != 1:
        source = "the captured one" if target.speedup is None else "a measured one"
        yield f"a step there works through {target.batch_ratio:g} times the samples of {source}"


def format_step_count(source: SourceSummary) -> str:
    """Format the number of steps that the medians are over."""
    if not source.steps_marked:
        return "no steps marked: all of it counts as one"
    return format_quantity(source.steps, f"{source.batches} batch" if source.batches else "step")


def name_place(place: str) -> str:
    """Return the display name of a resource on the critical path."""
    return {"gpu": "GPU", "host": "CPU", "communication": "network"}.get(place, place)


def sum_owner_shares(report: Report) -> list[tuple[str, float]]:
    """Sum the parts of the measured step by whose they are, in percent of the step, largest first."""
    shares: dict[str, float] = {}
    for part in report.parts:
        shares[part.owner] = shares.get(part.owner, 0.0) + part.share
    return sorted(shares.items(), key=lambda item: -item[1])


def keep_best(report: Report, most: int) -> Report:
    """Return the report with the best targets alone, for outputs that grow with each."""
    return replace(report, targets=report.targets[:most], bars=report.bars[: 1 + most])
