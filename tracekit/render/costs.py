"""Table columns with throughput and cost next to the step times, as far as they are known."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tracekit.format import format_amount, format_dollars, format_number, format_run_time
from tracekit.prediction.batch import StepBatch
from tracekit.prediction.model import PredictedStep
from tracekit.render.grid import ColumnKind
from tracekit.render.step_facts import has_prices
from tracekit.reporting.model import TargetsReport
from tracekit.reporting.sections.figure import Figure


@dataclass(frozen=True, slots=True)
class CostColumn:
    """A table column: one figure of the measured step and of each target's step.

    Attributes:
        heading: Heading, such as ``tokens/s``.
        measured: Value of the measured step.
        format_target: Function that formats a target's value.
        meaning: Explanation of the heading; empty if it needs none.
    """

    heading: str
    measured: str
    format_target: Callable[[PredictedStep], str]
    meaning: str

    @property
    def kind(self) -> ColumnKind:
        """Kind of column of a grid: throughput, which nobody asked for, and prices, which are known, may be dropped."""
        return "number" if self.heading.endswith(("/s", "/h")) else "figure"


def build_cost_columns(report: TargetsReport, *, brief: bool = False) -> Iterator[CostColumn]:
    """Yield throughput columns if the trace's batch is known, and cost columns as far as prices are known.

    Args:
        report: The report.
        brief: Leave out throughput, and the intervals, which are those of the step.
    """
    source, batch, decision = report.source, report.source.batch, report.decision
    if batch and not brief:
        yield CostColumn(
            f"{batch.unit}/s",
            format_number(source.per_second or 0.0),
            lambda one: format_number(one.per_second or 0.0),
            describe_batch(batch),
        )
    if decision is None:
        return
    here, targets = decision.here, {one.label: one for one in decision.targets}
    if has_prices(report):
        priced = "a million" if batch else f"{decision.amount:,}"
        yield CostColumn(
            "$/1M" if batch else "$/1k steps",
            format_dollars(here.dollars),
            lambda one: _format_dollars(targets[one.label].dollars, brief),
            f"dollars for {priced} {decision.unit}{'' if batch else ' as traced (--samples N for a million samples)'}",
        )
    if here.price is not None:
        yield CostColumn(
            "pays below",
            "",
            lambda one: _format_dollars(targets[one.label].break_even, brief),
            "the price there at which it costs as much as here",
        )
    if decision.run_amount is not None:
        run = f"{format_amount(decision.run_amount)} {decision.run_unit}"
        yield CostColumn(
            "run",
            "" if here.run_hours is None else format_run_time(here.run_hours),
            lambda one: _format_run(targets[one.label].run_hours, brief),
            f"time for {run}",
        )
        if has_prices(report):
            yield CostColumn(
                "run $",
                format_dollars(here.run_dollars),
                lambda one: _format_dollars(targets[one.label].run_dollars, brief),
                f"dollars for {run}",
            )
    if has_prices(report):
        yield CostColumn(
            "$/h",
            format_dollars(here.price),
            lambda one: format_dollars(targets[one.label].price),
            "dollars for an hour of one GPU",
        )


def _format_dollars(amount: Figure | None, brief: bool) -> str:
    """Format dollars with their interval; a dash without a price."""
    if amount is None or brief:
        return format_dollars(amount.likely if amount else None)
    return f"{format_dollars(amount.likely)} ({format_dollars(amount.low)}–{format_dollars(amount.high)})"


def _format_run(hours: Figure | None, brief: bool) -> str:
    return "" if hours is None else format_run_time(hours.likely if brief else hours.ordered)


def describe_batch(batch: StepBatch) -> str:
    """Describe the batch of the measured step and how it was determined."""
    first = "embedding" if batch.unit == "tokens" else "convolution"
    passes = f" in {batch.passes:,} passes" if batch.passes > 1 else ""
    known = "as given" if batch.given else "as the engine marks it" if batch.marked else f"as its first {first} tells"
    least, most = batch.ends
    open_to = f" ({least:,.0f} to {most:,.0f})" if least < most else ""
    return f"of {batch.size:,.0f}{open_to} in a step{passes}, {known}"


def explain_headings(columns: Iterable[CostColumn]) -> Iterator[str]:
    """Yield an explanation of the headings that need one."""
    if said := [f"{one.heading}: {one.meaning}" for one in columns if one.meaning]:
        yield "; ".join(said)
