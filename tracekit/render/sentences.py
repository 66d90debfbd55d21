"""Sentences of the report: its headline, its notes, and step times at other speeds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tracekit.escape import to_line
from tracekit.format import (
    format_duration,
    format_percent,
    format_quantity,
)
from tracekit.messages import Message, TextEscape, Value
from tracekit.messages import speeds as told
from tracekit.messages.findings import DOES_NOT_FIT
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.model import PredictedStep
from tracekit.reporting.model import Report
from tracekit.reporting.sections.source import SourceSummary

GPU_SPEEDS = (2.0, 5.0)
MOST_NAMED = 5
"""Most targets that a note names."""
MIN_KEPT_PCT = 5.0
"""Least percent of the step that no speed changes for that to be said."""


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
        here = name_gpus(report, source.gpu, source.ranks)
        takes = "is predicted to take" if source.is_captured else "takes"
        busy = 100 * source.kernel_time_us / source.step_time_us if source.step_time_us else 0.0
        detail = f"The GPU is busy for {format_percent(busy)} of the step. {describe_largest_part(report)}".rstrip()
        return Headline(f"A step on {here} {takes}", format_duration(source.step_time_us), ".", detail)
    target, speed, rest = split_answer(decision.sentence)
    best = next(one for one in report.targets if one.label == decision.targets[0].label)
    return Headline(f"{target}:", speed, "", " ".join([*rest, _describe_bottleneck(report, best)]))


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


def format_fit(memory: MemoryFit) -> str:
    """Format for a table column whether a rank fits into memory."""
    return {True: "yes", False: "no", None: "?"}[memory.fits]


def format_rank(report: Report, target: PredictedStep) -> str:
    """Format the rank of one of several targets for a table column; ``2=`` is shared."""
    ranks = {one.label: one.rank for one in report.decision.targets} if report.decision else {}
    rank = ranks[target.label]
    return f"{rank}=" if list(ranks.values()).count(rank) > 1 else str(rank)


def is_per_sample(report: Report) -> bool:
    """Return whether a target's step has another number of samples, so that times per sample are compared."""
    return any(target.batch_ratio != 1 for target in report.targets)


def has_prices(report: Report) -> bool:
    """Return whether a price of the trace's GPU or of a target's GPU was given."""
    return any(price is not None for price in (report.source.price, *(target.price for target in report.targets)))


def describe_step_samples(target: PredictedStep) -> Iterator[str]:
    """Yield a note if a target's step has another number of samples than the measured step."""
    if target.batch_ratio != 1:
        yield f"a step there works through {target.batch_ratio:g} times the samples of a measured one"


def _describe_bottleneck(report: Report, target: PredictedStep) -> str:
    """Describe missing memory, and the target's bottleneck or else its GPU utilization."""
    there = [finding for finding in report.findings if finding.on == target.label]
    step = target.step
    busy = 100 * step.kernel_time_us / step.step_time_us if step.step_time_us else 0.0
    lacking = [finding.title for finding in there if finding.message.template is DOES_NOT_FIT]
    limits = [finding.title for finding in there if finding.bottleneck]
    return " ".join([*lacking, *(limits or [f"The GPU would be busy for {format_percent(busy)} of that step."])])


def name_target(report: Report, target: PredictedStep) -> str:
    """Return the cluster's name, or the number and name of the GPUs."""
    return target.label if target.cluster else name_gpus(report, target.gpu, target.ranks)


def name_gpus(report: Report, slug: str | None, count: int) -> str:
    """Return the number of GPUs and their full name."""
    names = {gpu.slug: gpu.name for gpu in report.provenance.gpus}
    if slug is None:
        return "the measured GPU" if count == 1 else f"the {count} measured GPUs"
    name = names.get(slug, slug)
    return name if count == 1 else f"{count} × {name}"


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


def describe_speeds(report: Report) -> Iterator[Message]:
    """Yield the step with a faster GPU, CPU and network, and the speed at which another one limits it."""
    found = report.speeds
    steps = {(gpu, host): step_us for gpu, host, step_us in found.points}
    yield told.GPU_FASTER(
        steps=_describe_steps((speed, steps[speed, 1.0]) for speed in GPU_SPEEDS),
        floor_us=found.gpu_floor_us,
        limit=_describe_limit(found.host_limits_from, "CPU", found.gpu_floor_us, found.kept_us),
    )
    yield told.CPU_FASTER(
        steps=_describe_steps((h, us) for (g, h), us in steps.items() if h is not None and g == 1.0 < h),
        floor_us=found.host_floor_us,
        limit=_describe_limit(found.gpu_limits_from, "GPU", found.host_floor_us, found.kept_us),
    )
    if found.network:
        yield told.NETWORK_FASTER(
            steps=_describe_steps((speed, us) for speed, us in found.network if speed is not None and speed > 1),
            floor_us=found.network[-1][1],
        )
    kept_pct = 100 * found.kept_us / report.source.step_time_us
    if kept_pct >= MIN_KEPT_PCT:
        yield told.STAYS_AT_ANY_SPEED(kept_us=found.kept_us, kept_pct=kept_pct)


def _describe_steps(steps: Iterable[tuple[float, float]]) -> list[Message]:
    return [told.STEP_AT_SPEED(speed=speed, step_us=step_us) for speed, step_us in steps]


def _describe_limit(speed: float | None, resource: str, floor_us: float, kept_us: float) -> Message:
    if speed is None:
        return (told.LIMIT_KEPT if kept_us > floor_us / 2 else told.LIMIT_NEVER)(resource=resource)
    if speed == 1:
        return told.LIMIT_ALREADY(resource=resource)
    return told.LIMIT_FROM_SPEED(speed=speed, resource=resource)


def merge_target_notes(
    report: Report, said: Callable[[PredictedStep], Iterable[str]], escape: TextEscape = to_line
) -> Iterator[str]:
    """Yield each text about the targets once, preceded by the targets that it applies to unless it applies to all.

    Args:
        report: A report with predictions.
        said: Returns the texts about a target, escaped.
        escape: Escapes the names of targets.
    """
    concerned: dict[str, list[str]] = {}
    for target in report.targets:
        for text in said(target):
            concerned.setdefault(text, []).append(target.label)
    for text, gpus in concerned.items():
        yield text if len(gpus) == len(report.targets) else f"{escape(_name_some(gpus))}: {text}"


def _name_some(labels: Sequence[str]) -> str:
    """List names, the first of many."""
    left = len(labels) - MOST_NAMED
    return ", ".join(labels) if left <= 1 else f"{', '.join(labels[:MOST_NAMED])} and {left} more"


def keep_best(report: Report, most: int) -> Report:
    """Return the report with the best targets alone, for outputs that grow with each."""
    return replace(report, targets=report.targets[:most], bars=report.bars[: 1 + most])
