"""Sentences that several forms share: the headline, notes, findings, and the step with faster parts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tracekit.escape import to_line
from tracekit.format import format_duration, format_percent
from tracekit.messages import Message, OptionNames, TextEscape, Value, name_option
from tracekit.messages import predictions as told
from tracekit.messages.findings import DOES_NOT_FIT
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.note_order import ALWAYS_SHOWN, find_place
from tracekit.reporting.findings.context import Finding
from tracekit.reporting.model import Report, TargetsReport
from tracekit.reporting.sections.decision import Decision
from tracekit.reporting.sections.targets import count_gpus


@dataclass(frozen=True, slots=True)
class Headline:
    """The report's main statement.

    Attributes:
        before: The sentence up to the figure.
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


MOST_NOTES = 3
MOST_ALIKE = 3
"""Most notes of one kind about different targets; of more, the first is shown."""
MOST_NAMED = 5
"""Most targets that a text about some of them names."""
MOST_NAMED_BRIEFLY = 3
"""Most targets that one of the notes that matter most names."""


@dataclass(frozen=True, slots=True)
class ChosenNotes:
    """The notes to show.

    Attributes:
        texts: Those that matter most, one of each kind for all targets.
        omitted: Number of kinds that are left out.
    """

    texts: list[str]
    omitted: int


def choose_notes(report: TargetsReport, name: OptionNames = name_option, escape: TextEscape = to_line) -> ChosenNotes:
    """Choose the notes that matter most, by the step time that each is about; arguments as for :func:`collect_notes`.

    Notes of one kind become one: that of the target where it matters most, with the names of the others.
    """
    kinds = sorted(_group_notes(report).values(), key=lambda kind: min(place for place, _, _ in kind))
    shown = [kind for place, kind in enumerate(kinds) if place < MOST_NOTES or kind[0][2].template in ALWAYS_SHOWN]
    texts = [_describe_kind(report, kind, name, escape) for kind in shown]
    return ChosenNotes(texts, len(kinds) - len(texts))


def collect_notes(report: TargetsReport, name: OptionNames = name_option, escape: TextEscape = to_line) -> list[str]:
    """Return all notes on the predictions, without duplicates."""
    merged = merge_target_notes(report, lambda target: (note.render(name, escape) for note in target.notes), escape)
    codes = {note.render(name, escape): note.code for target in report.targets for note in target.notes}
    counts = Counter(codes.values())
    shown: dict[str, str] = {}
    for (text, code), note in zip(codes.items(), merged, strict=True):
        is_repeated = counts[code] > MOST_ALIKE
        more = f" (and {counts[code] - 1} more like it)" * is_repeated
        shown.setdefault(code if is_repeated else text, f"{note}{more}")
    return [*shown.values()]


_PlacedNote = tuple[tuple[int, float], str, Message]


def _group_notes(report: TargetsReport) -> dict[tuple[str, int], list[_PlacedNote]]:
    """Group the notes by kind: their place, their target and the note; a target's second of a kind is another one."""
    kinds: dict[tuple[str, int], list[_PlacedNote]] = {}
    for target in report.targets:
        before: Counter[str] = Counter()
        for note in target.notes:
            placed = (find_place(note, target.step.step_time_us), target.label, note)
            kinds.setdefault((note.code, before[note.code]), []).append(placed)
            before[note.code] += 1
    return kinds


def _describe_kind(report: TargetsReport, kind: list[_PlacedNote], name: OptionNames, escape: TextEscape) -> str:
    most = min(kind, key=lambda placed: placed[0])[2]
    text = most.render(name, escape)
    alike = [label for _, label, note in kind if note.render(name, escape) == text]
    others = [label for _, label, _ in kind if label not in alike]
    said = text if len(alike) == len(report.targets) else f"{escape(_name_some(alike, MOST_NAMED_BRIEFLY))}: {text}"
    return f"{said} Likewise on {escape(_name_some(others, MOST_NAMED_BRIEFLY))}." if others else said


def merge_target_notes(
    report: TargetsReport, said: Callable[[PredictedStep], Iterable[str]], escape: TextEscape = to_line
) -> Iterator[str]:
    """Yield each text about the targets once, preceded by the targets that it applies to unless it applies to all.

    ``said`` returns the texts about a target, escaped; ``escape`` escapes the names of targets.
    """
    concerned: dict[str, list[str]] = {}
    for target in report.targets:
        for text in said(target):
            concerned.setdefault(text, []).append(target.label)
    for text, gpus in concerned.items():
        yield text if len(gpus) == len(report.targets) else f"{escape(_name_some(gpus, MOST_NAMED))}: {text}"


def _name_some(labels: Sequence[str], most: int) -> str:
    """List names; of many the first ``most``, and how many more there are."""
    left = len(labels) - most
    return ", ".join(labels) if left <= 1 else f"{', '.join(labels[:most])} and {left} more"


def group_findings(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Group findings that give several targets the same advice; keep the order otherwise."""
    groups: dict[object, list[Finding]] = {}
    for place, finding in enumerate(findings):
        groups.setdefault(finding.code if finding.on else place, []).append(finding)
    return list(groups.values())


GPU_SPEEDS = (2.0, 5.0)
MIN_KEPT_PCT = 5.0
"""Least percent of the step that no speed changes for that to be said."""


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
