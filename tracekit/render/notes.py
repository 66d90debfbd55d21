"""The notes on predictions: those that matter most, and all of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tracekit.escape import to_line
from tracekit.messages import Message, OptionNames, TextEscape, name_option
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.note_order import ALWAYS_SHOWN, find_place
from tracekit.reporting.model import TargetsReport

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
    """Return all notes on the predictions, without duplicates.

    Args:
        report: A report with predictions.
        name: Names options as the front end does.
        escape: Escapes texts for their destination.
    """
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
        yield text if len(gpus) == len(report.targets) else f"{escape(_name_some(gpus, MOST_NAMED))}: {text}"


def _name_some(labels: Sequence[str], most: int) -> str:
    """List names; of many the first ``most``, and how many more there are."""
    left = len(labels) - most
    return ", ".join(labels) if left <= 1 else f"{', '.join(labels[:most])} and {left} more"
