"""Facts about a program that was captured without a GPU, as its trace keeps them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

FACTS_KEY = "tracekit_capture"
"""Top-level key of a trace that holds them."""

UNKNOWN_CAPTURED_US = 2.0
"""Time of a captured kernel of unknown work, about that of the shortest ones."""


@dataclass(frozen=True, slots=True)
class CaptureFacts:
    """What is known of a captured program besides its ops and kernels.

    Attributes:
        gpu: Canonical name of the GPU whose predicted times the trace holds.
        parameters: Number of its parameters.
        parameter_bytes: Their size.
        held_bytes: Size of all that a step begins with: parameters, buffers, inputs and the optimizer's states.
        peak_bytes: The most memory that its tensors hold at once; 0, as the other sizes, where nothing tells.
        trains: Whether the step has a backward pass.
        batch: Sequences of a step; 0 where they aren't known.
        tokens: Tokens of a step, likewise.
        collectives: Collectives that its ops have and the trace lacks.
    """

    gpu: str
    parameters: int
    parameter_bytes: int
    held_bytes: int
    peak_bytes: int
    trains: bool
    batch: int = 0
    tokens: int = 0
    collectives: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the facts as a trace keeps them."""
        return asdict(self)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> "CaptureFacts | None":
        """Read the facts of a trace; None for a recorded one, or where they aren't whole."""
        noted = metadata.get(FACTS_KEY)
        if not isinstance(noted, Mapping):
            return None
        values = {field.name: noted.get(field.name) for field in fields(cls)}
        sizes = [value for name, value in values.items() if name not in ("gpu", "trains")]
        whole = all(isinstance(size, int) and size >= 0 for size in sizes)
        if not whole or not isinstance(values["gpu"], str) or not isinstance(values["trains"], bool):
            return None
        return cls(**values)  # type: ignore[arg-type]  # checked above
