"""Table columns with throughput and cost next to the step times, as far as they are known."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tracekit.format import format_dollars, format_number
from tracekit.prediction.batch import StepBatch
from tracekit.prediction.model import PredictedStep
from tracekit.render.grid import ColumnKind
from tracekit.render.sentences import has_prices, is_per_sample
from tracekit.reporting.model import Report


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
        """Kind of column of a grid: throughput, which nobody asked for, may be dropped."""
        return "number" if self.heading.endswith("/s") else "figure"


def build_cost_columns(report: Report) -> Iterator[CostColumn]:
    """Yield throughput columns if the trace's batch is known, and cost columns if a price was given."""
    source, batch = report.source, report.source.batch
    if batch:
        yield CostColumn(
            f"{batch.unit}/s",
            format_number(source.per_second or 0.0),
            lambda one: format_number(one.per_second or 0.0),
            describe_batch(batch),
        )
    if not has_prices(report):
        return
    if batch:
        yield CostColumn(
            "$/1M",
            format_dollars(source.dollars_per_million),
            lambda one: format_dollars(one.dollars_per_million),
            f"dollars for a million {batch.unit}",
        )
        return
    steps = format_dollars(source.dollars_per_1000_steps)
    meaning = "dollars for 1,000 steps (with --samples N for a million samples)"
    yield CostColumn("$/1k steps", steps, lambda one: format_dollars(one.dollars_per_1000_steps), meaning)
    if is_per_sample(report):
        meaning = "dollars for as many samples as 1,000 measured steps have"
        yield CostColumn("as traced", steps, lambda one: format_dollars(one.dollars_per_1000_traced_steps), meaning)


def describe_batch(batch: StepBatch) -> str:
    """Describe the batch of the measured step and how it was determined."""
    first = "embedding" if batch.unit == "tokens" else "convolution"
    passes = f" in {batch.passes:,} passes" if batch.passes > 1 else ""
    known = "as given" if batch.given else "as the engine marks it" if batch.marked else f"as its first {first} tells"
    return f"of {batch.size:,.0f} in a measured step{passes}, {known}"


def explain_headings(report: Report) -> Iterator[str]:
    """Yield an explanation of the headings that need one."""
    if said := [f"{one.heading}: {one.meaning}" for one in build_cost_columns(report) if one.meaning]:
        yield "; ".join(said)
