"""What a decoder gives of a file."""

from dataclasses import dataclass

from tracekit.ingest.columns import DecodedColumns


@dataclass(slots=True)
class FileDamage:
    """Damage of a file.

    Attributes:
        events: Events passed, of all kinds.
        lost: Events that could not be read.
        lost_work: How many of them may be kernels, copies or sets, by what is left of their text.
        repaired: Events that could, after putting their JSON right.
        at_byte: Where the first of them is.
        cut_at: Where a file ends that lacks its closing bracket.
        metadata: Whether top-level keys were lost.
        followed_at: Where something begins that follows the closing bracket.
        followed_bytes: How long that is.
        comma_number: A time with a decimal comma, which isn't JSON.
    """

    events: int = 0
    lost_events: int = 0
    lost_activities: int = 0
    repaired_events: int = 0
    at_byte: int | None = None
    cut_at: int | None = None
    has_lost_metadata: bool = False
    followed_at: int | None = None
    followed_bytes: int = 0
    comma_number: str | None = None

    def note_place(self, at_byte: int) -> None:
        """Remember the position of the first damage."""
        self.at_byte = at_byte if self.at_byte is None else self.at_byte


@dataclass(slots=True)
class DecodedFile:
    """Content of a file.

    Attributes:
        keys: Top-level keys without the events, as JSON.
        columns: Rows of the events.
        words: Texts by number: those of the scanner from the start, those of the careful decoder from the end.
        damage: Damage of the file.
        begins_at: Where its document begins.
        ends_at: Where the file ends, if it was read by document.
        has_processes: Whether activities note the process that asked for them; Kineto notes their GPU there.
    """

    keys: dict[str, bytes]
    columns: DecodedColumns
    words: list[bytes]
    damage: FileDamage
    begins_at: int = 0
    ends_at: int = 0
    has_processes: bool = False
