"""The program to capture, as it is loaded."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LoadedProgram:
    """A model on the meta device, and what it is called with.

    Attributes:
        name: Of the program.
        model: A module, or a function.
        inputs: Its arguments.
        keywords: Its keyword arguments.
        attention: How its attention is computed, where its config or a default says so; empty where its code does.
        quantization: How its weights are quantized, as its config says; empty where they aren't.
    """

    name: str
    model: Any
    inputs: tuple[Any, ...] = ()
    keywords: dict[str, Any] | None = None
    attention: str = ""
    quantization: str = ""
