"""The statement that a report begins with."""

from dataclasses import dataclass

from tracekit.escape import to_line
from tracekit.format import format_duration, format_percent
from tracekit.messages import Message, Value
from tracekit.messages.findings import DOES_NOT_FIT
from tracekit.prediction.model import PredictedStep
from tracekit.reporting.model import Report
from tracekit.reporting.sections.decide import count_gpus
from tracekit.reporting.sections.decision import Decision


@dataclass(frozen=True, slots=True)
class Headline:
    """The report's main statement.

    Attributes:
        before: The sentence up to the figure.
        figure: The figure.
        after: The rest of the sentence.
        detail: The interval, the bottleneck and the cost.
    """

    before: str
    figure: str
    after: str
    detail: str


def build_headline(report: Report) -> Headline:
    """Build the answer in one sentence: the decision, or without targets the measured step."""
    source, decision = report.source, report.decision
    if decision is None:
        here = count_gpus(source.gpu_name, source.gpus)
        takes = "is predicted to take" if source.is_captured else "takes"
        busy = format_percent(source.busy_pct or 0.0)
        detail = f"The GPU is busy for {busy} of the step. {describe_largest_part(report)}".rstrip()
        return Headline(f"A step on {here} {takes}", format_duration(source.step_time_us), ".", detail)
    target, speed, rest = split_answer(decision.sentence)
    best = next(one for one in report.targets if one.label == decision.targets[0].label)
    return Headline(f"{target}:", speed, "", " ".join([*rest, _describe_bottleneck(report, best)]))


def build_answer_headline(decision: Decision) -> Headline:
    """Build the answer from the decision alone."""
    target, speed, rest = split_answer(decision.sentence)
    return Headline(f"{target}:", speed, "", " ".join(rest))


def describe_largest_part(report: Report) -> str:
    """Return the finding about the largest part of the measured step; empty without any part."""
    if not report.parts:
        return ""
    about = (finding for finding in report.findings if report.parts[0].name in finding.parts)
    return next((finding.title for finding in about), "")


def split_answer(answer: Message) -> tuple[str, str, list[str]]:
    """Return the target that an answer is about, how fast it is there, and the other sentences."""
    words, sentences = (_render_values(answer.values[name]) for name in ("target", "answers"))
    return " ".join(words), sentences[0], sentences[1:]


def _render_values(values: Value) -> list[str]:
    assert isinstance(values, tuple)
    return [value.render() if isinstance(value, Message) else to_line(str(value)) for value in values]


def _describe_bottleneck(report: Report, target: PredictedStep) -> str:
    """Describe missing memory, and the target's bottleneck or else its GPU utilization."""
    there = [finding for finding in report.findings if finding.on == target.label]
    lacking = [finding.title for finding in there if finding.message.template is DOES_NOT_FIT]
    limits = [finding.title for finding in there if finding.bottleneck]
    busy = format_percent(target.step.busy_pct or 0.0)
    return " ".join([*lacking, *(limits or [f"The GPU would be busy for {busy} of that step."])])
