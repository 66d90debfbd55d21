"""Facts about a program that was captured without a GPU, as its trace keeps them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated
from zlib import crc32

import msgspec

from tracekit.errors import RequestError
from tracekit.models.dlrm import TableSpec
from tracekit.models.stacks import find_stack

FACTS_KEY = "tracekit_capture"
"""Top-level key of a trace that holds them."""

UNKNOWN_CAPTURED_US = 2.0
"""Time of a captured kernel of unknown work, about that of the shortest ones."""

HALF_BYTES = 2
"""Of a number of 16 bits."""

Size = Annotated[int, msgspec.Meta(ge=0)]
Time = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """What the layers of a program hold, in the order of the forward pass.

    Attributes:
        kinds: Of layers that hold the same: the parameters, what a layer keeps for its backward pass, and the most that
            its passes hold beside what it and those before it keep.
        order: The kind of each layer.
        first_parameter_bytes: Parameters before the layers.
        first_kept_bytes: What is kept of what runs before the layers.
        last_parameter_bytes: Parameters behind the layers; those that both ends share are in both.
        last_extra_bytes: The most that what runs behind the layers holds beside what layers keep.
    """

    kinds: tuple[tuple[Size, Size, Size], ...]
    order: tuple[Size, ...]
    first_parameter_bytes: Size
    first_kept_bytes: Size
    last_parameter_bytes: Size
    last_extra_bytes: Size

    @property
    def parameter_bytes(self) -> tuple[int, ...]:
        """Parameters of each layer."""
        return tuple(self.kinds[kind][0] for kind in self.order)

    @property
    def kept_bytes(self) -> tuple[int, ...]:
        """What each layer keeps for its backward pass."""
        return tuple(self.kinds[kind][1] for kind in self.order)

    @property
    def extra_bytes(self) -> tuple[int, ...]:
        """The most that each layer's passes hold beside what it and those before it keep."""
        return tuple(self.kinds[kind][2] for kind in self.order)


@dataclass(frozen=True, slots=True)
class CaptureFacts:
    """What is known of a captured program besides its ops and kernels.

    Attributes:
        gpu: Canonical name of the GPU whose predicted times the trace holds.
        parameters: Number of its parameters.
        parameter_bytes: Their size.
        held_bytes: Size of all that a step begins with: parameters, buffers, inputs and the optimizer's states.
        peak_bytes: The most memory that its tensors hold at once; 0, as the other sizes, where nothing tells.
        state_bytes: The optimizer's states, of what is held.
        peaks: Moments that may need most memory, however these are scaled, the update last: bytes of gradients, of
            activations, and of what the update makes; empty where nothing tells.
        activations: At the moment of the most activations, their bytes by the shapes that ops see of a tensor; empty
            where nothing tells.
        layers: What layers hold; None where nothing tells.
        trains: Whether the step has a backward pass.
        micro_batches: Its forward and backward passes, whose gradients add up.
        recompute: What layers run again in the backward pass: 'full' or 'selective'; empty for none.
        frozen_bytes: Size of the parameters that aren't trained, where adapters are.
        batch: Sequences of a step; 0 where they aren't known.
        tokens: Tokens of a step, likewise.
        is_longest: Whether its sequences are the longest that were found to fit.
        collectives: Collectives that its ops have and the trace lacks.
        measured_by: Name of a recorded trace that corrected the times; empty without one.
        seen: The ops that it ran with the same inputs, as :func:`hash_inputs` tells them.
        tables: Embedding tables of a recommender's configuration.
        attention: How attention is computed, as was assumed or asked for; empty as the program's code has it.
        quantization: How its config says that weights are quantized; empty where they aren't.
        cache: Format of keys and values in an engine's cache, where nobody measured how long that takes to read; else
            empty.
        precision: Format of fewer than 16 bits that its linear layers' products run in; empty where none was asked for.
        left_out: What its description has and the capture lacks.
        stack: The framework that trains it; 'unknown' where only a config tells of it, empty where its code runs.
        engine: The serving engine whose kernels it has; empty where PyTorch runs it.
        engine_host_us: CPU time of the engine's step beside the GPU's: low, likely, high.
        ranks: Ranks of the job that it is one of.
    """

    gpu: str
    parameters: Size
    parameter_bytes: Size
    held_bytes: Size
    peak_bytes: Size
    trains: bool
    state_bytes: Size = 0
    peaks: tuple[tuple[Size, Size, Size], ...] = ()
    activations: tuple[tuple[Size, tuple[tuple[Size, ...], ...]], ...] = ()
    layers: LayerMemory | None = None
    micro_batches: Size = 1
    recompute: str = ""
    frozen_bytes: Size = 0
    batch: Size = 0
    tokens: Size = 0
    is_longest: bool = False
    collectives: Size = 0
    measured_by: str = ""
    seen: tuple[int, ...] = ()
    tables: tuple[TableSpec, ...] = ()
    attention: str = ""
    quantization: str = ""
    precision: str = ""
    left_out: tuple[str, ...] = ()
    stack: str = ""
    engine: str = ""
    cache: str = ""
    engine_host_us: tuple[Time, Time, Time] = (0.0, 0.0, 0.0)
    ranks: Annotated[int, msgspec.Meta(ge=1)] = 1

    def on_stack(self, name: str) -> "CaptureFacts":
        """Return the facts of the program on a stack, which may keep wider states of its optimizer."""
        narrow = self.parameter_bytes - self.frozen_bytes
        is_adam = self.parameter_bytes == HALF_BYTES * self.parameters and self.state_bytes >= 2 * narrow > 0
        wide = find_stack(name).wide_state_bytes * (narrow // HALF_BYTES) if is_adam else 0
        held, peak, state = (size + wide for size in (self.held_bytes, self.peak_bytes, self.state_bytes))
        return replace(self, stack=name, held_bytes=held, peak_bytes=peak, state_bytes=state)

    def to_dict(self) -> dict[str, object]:
        """Return the facts as a trace keeps them."""
        return asdict(self)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> "CaptureFacts | None":
        """Read the facts of a trace; None for a recorded one, or where they aren't whole."""
        noted = metadata.get(FACTS_KEY)
        if not isinstance(noted, Mapping):
            return None
        values = {field.name: noted[field.name] for field in fields(cls) if field.name in noted}
        try:
            return msgspec.convert(values, cls)
        except (msgspec.ValidationError, RequestError):
            return None


def hash_inputs(op: str, dims: str) -> int:
    """Return a number for an op with its inputs' shapes, the same on every machine."""
    return crc32(f"{op}{dims}".encode())
