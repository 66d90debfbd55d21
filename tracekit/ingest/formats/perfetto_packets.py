"""Read the packets of a Perfetto trace with the texts that they refer to by number."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

Texts = Mapping[str, Mapping[int, str]]
"""The numbered texts of a sequence of packets, by the field that numbers them."""

STATE_CLEARED = 1
"""Flag of a packet after which the texts that were numbered before are forgotten."""


def list_packets(trace: Any) -> Iterator[tuple[Any, Texts]]:
    """Yield each packet, and the texts known by then."""
    known: dict[int, dict[str, dict[int, str]]] = defaultdict(lambda: defaultdict(dict))
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & STATE_CLEARED:
            known.pop(sequence, None)
        texts = known[sequence]
        for field, entries in packet.interned_data.ListFields():
            texts[field.name].update((entry.iid, entry.name or _get_demangled_name(entry)) for entry in entries)
        yield packet, texts


def name_event(event: Any, texts: Texts) -> str:
    """Return the name of a slice."""
    return str(event.name or texts["event_names"].get(event.name_iid, "unknown"))


def list_categories(event: Any, texts: Texts) -> list[str]:
    """Return the categories of a slice."""
    return [*event.categories, *(texts["event_categories"].get(iid, "") for iid in event.category_iids)]


def name_note(note: Any, texts: Texts) -> str:
    """Return the name of an argument."""
    return str(note.name or texts["debug_annotation_names"].get(note.name_iid, ""))


def _get_demangled_name(entry: Any) -> str:
    return str(getattr(entry, "demangled_name", ""))
