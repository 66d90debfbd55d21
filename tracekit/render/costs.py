"""What gets done in a second and what it costs, as far as that is known: columns beside the steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tracekit.prediction import Prediction
from tracekit.prediction.batch import Batch
from tracekit.render.words import counts_samples, priced
from tracekit.reporting.model import Report
from tracekit.units import digits, dollars


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of the measured step and of each target's.

    Attributes:
        heading: Such as ``tokens/s``.
        measured: The measured step's.
        on: A target's.
        meaning: What the heading stands for; empty where it says so itself.
    """

    heading: str
    measured: str
    on: Callable[[Prediction], str]
    meaning: str


def columns(report: Report) -> Iterator[Column]:
    """Throughput where the trace tells its batch, and the cost of the same work where a price was given."""
    source, batch = report.source, report.source.batch
    if batch:
        yield Column(
            f"{batch.unit}/s",
            digits(source.per_second or 0.0),
            lambda one: digits(one.per_second or 0.0),
            told(batch),
        )
    if not priced(report):
        return
    if batch:
        yield Column(
            "$/1M",
            dollars(source.dollars_per_million),
            lambda one: dollars(one.dollars_per_million),
            f"dollars for a million {batch.unit}",
        )
        return
    steps = dollars(source.dollars_per_1000_steps)
    meaning = "dollars for 1,000 steps (with --samples N for a million samples)"
    yield Column("$/1k steps", steps, lambda one: dollars(one.dollars), meaning)
    if counts_samples(report):
        meaning = "dollars for as many samples as 1,000 measured steps have"
        yield Column("as traced", steps, lambda one: dollars(one.dollars_as_traced), meaning)


def told(batch: Batch) -> str:
    """How much the measured step works through, and how that is known."""
    first = "embedding" if batch.unit == "tokens" else "convolution"
    passes = f" in {batch.passes:,} passes" if batch.passes > 1 else ""
    known = "as given" if batch.given else "as the engine marks it" if batch.marked else f"as its first {first} tells"
    return f"of {batch.size:,.0f} in a measured step{passes}, {known}"


def legend(report: Report) -> Iterator[str]:
    """What those headings stand for that don't say it themselves."""
    if said := [f"{one.heading}: {one.meaning}" for one in columns(report) if one.meaning]:
        yield "; ".join(said)
