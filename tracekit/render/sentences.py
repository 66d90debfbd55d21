"""Sentences of the report: its headline, its notes, and step times at other speeds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from tracekit.escape import to_line
from tracekit.format import (
    format_dollars,
    format_duration,
    format_interval,
    format_number,
    format_percent,
    format_quantity,
)
from tracekit.messages import Message, OptionNames, TextEscape, name_option
from tracekit.messages import speeds as told
from tracekit.messages.findings import DOES_NOT_FIT
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.model import PredictedStep
from tracekit.reporting.model import Report
from tracekit.reporting.sections.source import SourceSummary

EQUAL_SPEEDUP_TOLERANCE = 0.01
GPU_SPEEDS = (2.0, 5.0)
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
    """Build the answer in one sentence."""
    source = report.source
    here = name_gpus(report, source.gpu, source.ranks)
    step = format_duration(source.step_time_us)
    others = [target for target in report.targets if target.label != source.gpu]
    takes = "is predicted to take" if source.is_captured else "takes"
    if not others:
        busy = 100 * source.kernel_time_us / source.step_time_us if source.step_time_us else 0.0
        detail = f"The GPU is busy for {format_percent(busy)} of the step. {describe_largest_part(report)}".rstrip()
        return Headline(f"A step on {here} {takes}", step, ".", detail)
    best, among = _choose_best(others)
    there = name_target(report, best)
    if best.layout and best.layout.world_size > 1:
        there += f" as {best.layout.parallelism}"
    larger = "" if best.batch_ratio == 1 else f" with {best.batch_ratio:g} times the batch"
    edited = " with the what-if edits" if report.what_if else ""
    each = "" if best.batch_ratio == 1 else " for each sample"
    return Headline(
        f"A step {takes} {step} on {here}. On {there}{among}, it would take",
        format_duration(best.step.step_time_us),
        f"{larger}{edited}: {_format_speedup(best.speedup_per_sample)}{each}.",
        " ".join((_describe_interval(report, best), _describe_bottleneck(report, best), *_describe_cheapest(report))),
    )


def describe_largest_part(report: Report) -> str:
    """Return the finding about the largest part of the measured step; empty without any part."""
    if not report.parts:
        return ""
    about = (finding for finding in report.findings if report.parts[0].name in finding.parts)
    return next((finding.title for finding in about), "")


def _choose_best(targets: Sequence[PredictedStep]) -> tuple[PredictedStep, str]:
    """Choose the fastest target with enough memory; describe its rank among the others.

    Among equally fast targets the cheapest is chosen, then the one with the lowest upper interval bound.
    """
    able = [target for target in targets if target.memory.fits is not False] or targets
    most = max(target.speedup_per_sample for target in able)
    level = [target for target in able if target.speedup_per_sample >= (1 - EQUAL_SPEEDUP_TOLERANCE) * most]
    best = min(level, key=lambda target: (_get_cost(target), target.high_us))
    among = ""
    if len(able) > 1:
        among = f", the fastest of {len(able)}" if len(level) == 1 else f", as fast as any of {len(able)}"
    lacking = len(targets) - len(able)
    return best, f"{among} ({lacking} more lack{'s' * (lacking == 1)} the memory)" if lacking else among


def _get_cost(target: PredictedStep) -> float:
    """Return the dollars for the same samples; infinity where unknown."""
    return inf if target.dollars_per_1000_traced_steps is None else target.dollars_per_1000_traced_steps


def format_fit(memory: MemoryFit) -> str:
    """Format for a table column whether a rank fits into memory."""
    return {True: "yes", False: "no", None: "?"}[memory.fits]


def is_per_sample(report: Report) -> bool:
    """Return whether a target's step has another number of samples, so that times per sample are compared."""
    return any(target.batch_ratio != 1 for target in report.targets)


def has_prices(report: Report) -> bool:
    """Return whether a price of the trace's GPU or of a target's GPU was given."""
    costs = (report.source.dollars_per_1000_steps, *(target.dollars_per_1000_steps for target in report.targets))
    return any(one is not None for one in costs)


def describe_step_samples(target: PredictedStep) -> Iterator[str]:
    """Yield a note if a target's step has another number of samples than the measured step."""
    if target.batch_ratio != 1:
        yield f"a step there works through {target.batch_ratio:g} times the samples of a measured one"


def _format_speedup(speedup: float) -> str:
    if abs(speedup - 1) < EQUAL_SPEEDUP_TOLERANCE:
        return "no faster"
    return f"{format_number(speedup)}× as fast" if speedup > 1 else f"{format_number(1 / speedup)}× as long"


def _describe_interval(report: Report, target: PredictedStep) -> str:
    """Describe the interval, and say if it doesn't determine which step is faster."""
    here = report.source.step_time_us * target.batch_ratio
    doubt = ""
    if target.low_us < here < target.high_us and abs(target.speedup_per_sample - 1) >= EQUAL_SPEEDUP_TOLERANCE:
        doubt = f", so that it may be no {'faster' if target.speedup_per_sample > 1 else 'slower'}"
    return f"90 % interval {format_interval(target.low_us, target.high_us)}{doubt}."


def _describe_bottleneck(report: Report, target: PredictedStep) -> str:
    """Describe missing memory, and the target's bottleneck or else its GPU utilization."""
    there = [finding for finding in report.findings if finding.on == target.label]
    step = target.step
    busy = 100 * step.kernel_time_us / step.step_time_us if step.step_time_us else 0.0
    lacking = [finding.title for finding in there if finding.message.template is DOES_NOT_FIT]
    limits = [finding.title for finding in there if finding.bottleneck]
    return " ".join([*lacking, *(limits or [f"The GPU would be busy for {format_percent(busy)} of that step."])])


def _describe_cheapest(report: Report) -> Iterator[str]:
    """Yield the cheapest place for the same samples, of at least two with a price and enough memory."""
    source, batch = report.source, report.source.batch
    of = f"a million {batch.unit}" if batch else f"1,000 {'traced ' * is_per_sample(report)}steps"
    here = source.dollars_per_million if batch else source.dollars_per_1000_steps
    costs = [] if here is None else [(here, f"{name_gpus(report, source.gpu, source.ranks)} as measured")]
    for target in report.targets:
        there = target.dollars_per_million if batch else target.dollars_per_1000_traced_steps
        if there is not None and target.memory.fits is not False:
            costs.append((there, name_target(report, target) + " (may not fit)" * (target.memory.fits is None)))
    if len(costs) > 1:
        least, place = min(costs)
        those = f" of the {len(costs)} with a price" * any(target.price is None for target in report.targets)
        yield f"Cheapest{those} is {place}: ${format_dollars(least)} for {of}."


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


def collect_notes(report: Report, name: OptionNames = name_option, escape: TextEscape = to_line) -> list[str]:
    """Return the notes on the predictions, without duplicates.

    Args:
        report: A report with predictions.
        name: Names options as the front end does.
        escape: Escapes texts for their destination.
    """
    return list(merge_target_notes(report, lambda target: (note.render(name, escape) for note in target.notes), escape))


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
        yield text if len(gpus) == len(report.targets) else f"{escape(', '.join(gpus))}: {text}"
