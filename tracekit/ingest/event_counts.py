"""Counts of a file's events by what became of them, kept while it is decoded."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tracekit.bounds import MAX_CATEGORY_CHARS, MAX_EVENT_KINDS
from tracekit.ingest.fields import CONTROL_CHARACTERS
from tracekit.messages import Template

OTHER_CATEGORIES = "others"


@dataclass(slots=True)
class EventCount:
    """Events of one category and phase that fared alike.

    Attributes:
        template: What became of them.
        category: Their category, or the table that they belong to; empty without one.
        phase: Their phase; empty without one, or where several count together.
        count: Number of them.
        first_event: Number of the first in the file, from 0; ``None`` if unknown.
        first_byte: Where it is, if it is damaged; else ``None``.
    """

    template: Template
    category: str
    phase: str
    count: int
    first_event: int | None
    first_byte: int | None = None


class EventCounts:
    """The counts; the first event of a kind is the one with the lowest number."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], EventCount] = {}

    def add(
        self,
        template: Template,
        category: str = "",
        phase: str = "",
        *,
        count: int = 1,
        first: int | None = None,
        at_byte: int | None = None,
    ) -> None:
        """Count events.

        Args:
            template: What became of them.
            category: Their category or table.
            phase: Their phase.
            count: Number of them.
            first: Number of the first in the file.
            at_byte: Where it is.
        """
        category, phase = clean_category(category), clean_category(phase)
        key = (template.code, category, phase)
        known = self._counts.get(key)
        if known is None:
            self._counts[key] = EventCount(template, category, phase, count, first, at_byte)
            return
        known.count += count
        if first is not None and (known.first_event is None or first < known.first_event):
            known.first_event, known.first_byte = first, at_byte

    def count(self, template: Template) -> int:
        """Return the number of events that fared so."""
        return sum(one.count for one in self.select(template))

    def select(self, template: Template) -> list[EventCount]:
        """Return the kinds that fared so."""
        return [one for one in self if one.template is template]

    def __iter__(self) -> Iterator[EventCount]:
        """Yield the kinds in order of their first event; those beyond ``MAX_EVENT_KINDS`` of a template as one."""
        ordered = sorted(
            self._counts.values(),
            key=lambda one: (one.first_event is None, one.first_event or 0, one.template.code, one.category, one.phase),
        )
        shown: Counter[str] = Counter()
        rest = EventCounts()
        for one in ordered:
            shown[one.template.code] += 1
            if shown[one.template.code] <= MAX_EVENT_KINDS:
                yield one
            else:
                rest.add(one.template, OTHER_CATEGORIES, count=one.count, first=one.first_event, at_byte=one.first_byte)
        yield from rest._counts.values()


def clean_category(category: str | None) -> str:
    """Return a category for display: short, without control characters."""
    return re.sub(CONTROL_CHARACTERS, "\N{REPLACEMENT CHARACTER}", (category or "")[:MAX_CATEGORY_CHARS])
