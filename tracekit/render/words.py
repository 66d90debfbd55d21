"""The report's first sentence."""

from dataclasses import dataclass

from tracekit.prediction import Prediction
from tracekit.reporting.model import Report
from tracekit.units import duration, percent

NO_DIFFERENCE = 0.01
BOTTLENECK = "bottleneck-there"


@dataclass(frozen=True, slots=True)
class Headline:
    """What a reader takes away.

    Attributes:
        before: Up to the figure.
        figure: The figure.
        after: The rest of the sentence.
        detail: What it hinges on.
    """

    before: str
    figure: str
    after: str
    detail: str


def headline(report: Report) -> Headline:
    """The answer in one sentence."""
    source = report.source
    here = _name(report, source.gpu)
    step = duration(source.step_time_us)
    others = [target for target in report.targets if target.label != source.gpu]
    if not others:
        busy = 100 * source.kernel_time_us / source.step_time_us if source.step_time_us else 0.0
        return Headline(f"A step on {here} takes", step, "", f"The GPU is busy {percent(busy)} of it.")
    best = max(others, key=lambda target: target.speedup)
    among = "" if len(others) == 1 else f", the fastest of {len(others)}"
    there = best.label if best.cluster else _name(report, best.gpu)
    return Headline(
        f"A step takes {step} on {here}. On {there}{among}, it would take",
        duration(best.step.step_time_us),
        f": {_compared(best.speedup)}.",
        _detail(report, best),
    )


def _compared(speedup: float) -> str:
    if abs(speedup - 1) < NO_DIFFERENCE:
        return "no faster"
    return f"{speedup:.2f}× as fast" if speedup > 1 else f"{1 / speedup:.2f}× as long"


def _detail(report: Report, target: Prediction) -> str:
    """What limits the step there, if one thing does, else how busy its GPU would be."""
    limits = (f.title for f in report.findings if f.on == target.label and f.kind == BOTTLENECK)
    step = target.step
    busy = 100 * step.kernel_time_us / step.step_time_us if step.step_time_us else 0.0
    return next(limits, f"The GPU would be busy {percent(busy)} of that step.")


def _name(report: Report, slug: str | None) -> str:
    names = {gpu.slug: gpu.name for gpu in report.provenance.gpus}
    return names.get(slug or "", slug or "the measured GPU")
