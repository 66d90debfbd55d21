"""The report's sentences: its first one, and what other speeds would give."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isinf

from tracekit.prediction import Prediction
from tracekit.prediction.memory import Memory
from tracekit.reporting.findings.memory import LACKING
from tracekit.reporting.findings.target import BOTTLENECK
from tracekit.reporting.model import Report
from tracekit.reporting.sections.source import Source
from tracekit.units import digits, dollars, duration, interval, many, percent

NO_DIFFERENCE = 0.01
GPU_SPEEDS = (2.0, 5.0)


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
    here = gpus_named(report, source.gpu, source.ranks)
    step = duration(source.step_time_us)
    others = [target for target in report.targets if target.label != source.gpu]
    if not others:
        busy = 100 * source.kernel_time_us / source.step_time_us if source.step_time_us else 0.0
        return Headline(f"A step on {here} takes", step, ".", f"The GPU is busy {percent(busy)} of it.")
    best, among = _best(others)
    there = target_named(report, best)
    if best.layout and best.layout.world_size > 1:
        there += f" as {best.layout.parallel}"
    larger = "" if best.samples == 1 else f" with {best.samples:g} times the batch"
    edited = " with the what-if edits" if report.what_if else ""
    each = "" if best.samples == 1 else " for each sample"
    return Headline(
        f"A step takes {step} on {here}. On {there}{among}, it would take",
        duration(best.step.step_time_us),
        f"{larger}{edited}: {_compared(best.speedup_per_sample)}{each}.",
        " ".join((_sure(report, best), _detail(report, best), *_cheapest(report))),
    )


def _best(targets: Sequence[Prediction]) -> tuple[Prediction, str]:
    """The fastest that doesn't lack memory, among equals the cheapest and surest, and how it stands to the others."""
    able = [target for target in targets if target.memory.fits is not False] or targets
    most = max(target.speedup_per_sample for target in able)
    level = [target for target in able if target.speedup_per_sample >= (1 - NO_DIFFERENCE) * most]
    best = min(level, key=lambda target: (_cost(target), target.high_us))
    among = ""
    if len(able) > 1:
        among = f", the fastest of {len(able)}" if len(level) == 1 else f", as fast as any of {len(able)}"
    lacking = len(targets) - len(able)
    return best, f"{among} ({lacking} more lack{'s' * (lacking == 1)} the memory)" if lacking else among


def _cost(target: Prediction) -> float:
    """Dollars for the same samples; infinite where nothing is known of them."""
    return inf if target.dollars_as_traced is None else target.dollars_as_traced


def fits(memory: Memory) -> str:
    """Whether a rank fits, for a column."""
    return {True: "yes", False: "no", None: "?"}[memory.fits]


def counts_samples(report: Report) -> bool:
    """Whether steps of a target work through more or less than the traced ones, so that samples are compared."""
    return any(target.samples != 1 for target in report.targets)


def priced(report: Report) -> bool:
    """Whether the price of the trace's GPU or of a target's was given."""
    costs = (report.source.dollars_per_1000_steps, *(target.dollars for target in report.targets))
    return any(one is not None for one in costs)


def larger_steps(target: Prediction) -> Iterator[str]:
    """That its step isn't of as many samples as the measured one."""
    if target.samples != 1:
        yield f"a step there works through {target.samples:g} times the samples of a measured one"


def _compared(speedup: float) -> str:
    if abs(speedup - 1) < NO_DIFFERENCE:
        return "no faster"
    return f"{digits(speedup)}× as fast" if speedup > 1 else f"{digits(1 / speedup)}× as long"


def _sure(report: Report, target: Prediction) -> str:
    """The interval, and whether the sign of the difference is in doubt."""
    here = report.source.step_time_us * target.samples
    doubt = ""
    if target.low_us < here < target.high_us and abs(target.speedup_per_sample - 1) >= NO_DIFFERENCE:
        doubt = f", so that it may be no {'faster' if target.speedup_per_sample > 1 else 'slower'}"
    return f"90 % interval {interval(target.low_us, target.high_us)}{doubt}."


def _detail(report: Report, target: Prediction) -> str:
    """That it doesn't fit; what limits the step there, if one thing does, else how busy its GPU would be."""
    told = {finding.kind: finding.title for finding in report.findings if finding.on == target.label}
    step = target.step
    busy = 100 * step.kernel_time_us / step.step_time_us if step.step_time_us else 0.0
    limits = told.get(BOTTLENECK, f"The GPU would be busy {percent(busy)} of that step.")
    return f"{told[LACKING]} {limits}" if LACKING in told else limits


def _cheapest(report: Report) -> Iterator[str]:
    """Where the same samples cost least, of two or more places whose price was given and that don't lack memory."""
    source, batch = report.source, report.source.batch
    of = f"a million {batch.unit}" if batch else f"1,000 {'traced ' * counts_samples(report)}steps"
    here = source.dollars_per_million if batch else source.dollars_per_1000_steps
    costs = [] if here is None else [(here, f"{gpus_named(report, source.gpu, source.ranks)} as measured")]
    for target in report.targets:
        there = target.dollars_per_million if batch else target.dollars_as_traced
        if there is not None and target.memory.fits is not False:
            costs.append((there, target_named(report, target) + " (may not fit)" * (target.memory.fits is None)))
    if len(costs) > 1:
        least, place = min(costs)
        those = f" of the {len(costs)} with a price" * any(target.price is None for target in report.targets)
        yield f"Cheapest{those} is {place}: ${dollars(least)} for {of}."


def target_named(report: Report, target: Prediction) -> str:
    """The cluster, or so many GPUs."""
    return target.label if target.cluster else gpus_named(report, target.gpu, target.ranks)


def gpus_named(report: Report, slug: str | None, count: int) -> str:
    """So many GPUs by their full name."""
    names = {gpu.slug: gpu.name for gpu in report.provenance.gpus}
    if slug is None:
        return "the measured GPU" if count == 1 else f"the {count} measured GPUs"
    name = names.get(slug, slug)
    return name if count == 1 else f"{count} × {name}"


def measured_steps(source: Source) -> str:
    """How many steps the medians are over."""
    if not source.steps_marked:
        return "no steps marked: all of it counts as one"
    return many(source.steps, f"{source.batches} batch" if source.batches else "step")


def place_named(place: str) -> str:
    """What the critical path runs on."""
    return "GPU" if place == "gpu" else place


def speed_lines(report: Report) -> Iterator[str]:
    """The step with a faster GPU, CPU and network, and from where on another of them is the limit."""
    found = report.speeds
    steps = {(gpu, host): step_us for gpu, host, step_us in found.points}
    gpus = ", ".join(f"{speed:g}x {duration(steps[speed, 1.0])}" for speed in GPU_SPEEDS)
    yield f"GPU {gpus}, never below {duration(found.gpu_floor_us)}; {_limit(found.host_limits_from, 'the CPU')}"
    hosts = ", ".join(f"{h:g}x {duration(us)}" for (g, h), us in steps.items() if g == 1.0 < h and not isinf(h))
    yield f"CPU {hosts}, never below {duration(found.host_floor_us)}; {_limit(found.gpu_limits_from, 'the GPU')}"
    if found.network:
        network = ", ".join(f"{s:g}x {duration(us)}" for s, us in found.network if s > 1 and not isinf(s))
        yield f"network {network}, never below {duration(found.network[-1][1])}"


def _limit(speed: float | None, what: str) -> str:
    if speed is None:
        return f"{what} doesn't become the limit"
    return f"{what} is the limit already" if speed == 1 else f"from {speed:.2g}x on {what} is the limit"


def notes(report: Report) -> list[str]:
    """What to know about the predictions, each once."""
    return list(once(report, lambda target: target.notes))


def once(report: Report, said: Callable[[Prediction], Iterable[str]]) -> Iterator[str]:
    """What is said of the targets, each once, with those it concerns."""
    concerned: dict[str, list[str]] = {}
    for target in report.targets:
        for text in said(target):
            concerned.setdefault(text, []).append(target.label)
    for text, gpus in concerned.items():
        yield text if len(gpus) == len(report.targets) else f"{', '.join(gpus)}: {text}"
