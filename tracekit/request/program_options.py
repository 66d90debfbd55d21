"""How a program that never ran is captured; see :mod:`tracekit.capturing`."""

from dataclasses import dataclass
from typing import Annotated

from tracekit.bounds import MAX_COUNT
from tracekit.capturing.options import CaptureOptions
from tracekit.errors import RequestError
from tracekit.messages import captures as messages
from tracekit.request.option import Option, Request


@dataclass(frozen=True, kw_only=True)
class ProgramOptions(Request):
    """How a program is captured."""

    train: Annotated[
        bool, Option("Of a program: a training step, forward, backward and the optimizer.", "Training step")
    ] = False
    optimizer: Annotated[
        str | None,
        Option("Of a program: adamw, adam or sgd, or fused-adamw and so on; default none.", "Optimizer"),
    ] = None
    autocast: Annotated[
        str | None, Option("Of a program: mixed precision, bf16 or fp16.", "Mixed precision", "TYPE")
    ] = None
    tf32: Annotated[bool, Option("Of a program: products of fp32 run in TF32.", "TF32")] = False
    cuda_graph: Annotated[bool, Option("Of a program: one CUDA graph launches all kernels.", "CUDA graph")] = False
    seq: Annotated[
        int | None,
        Option("Of a config: tokens of each sequence, default 2048.", "Tokens", "N", minimum=1, maximum=MAX_COUNT),
    ] = None
    dtype: Annotated[
        str | None, Option("Of a config: type of its parameters, bf16 (default), fp16 or fp32.", "Type", "TYPE")
    ] = None

    measured: Annotated[
        str | None,
        Option(
            "Of a program: a recorded trace of it, on any GPU and at any batch, that corrects its times.",
            "Trace of the program",
            "TRACE",
        ),
    ] = None

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        _ = self.capture

    @property
    def capture(self) -> CaptureOptions:
        """The same without what front ends need."""
        return CaptureOptions(**self.to_dict())

    def refuse_without_program(self) -> None:
        """Refuse options of programs for what is none.

        Raises:
            RequestError: One is given.
        """
        if self != ProgramOptions():
            raise RequestError(messages.OPTIONS_OF_PROGRAMS())
