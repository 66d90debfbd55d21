"""How a program that never ran is captured; see :mod:`tracekit.capturing`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

from tracekit.bounds import MAX_COUNT
from tracekit.capturing.options import CaptureOptions
from tracekit.errors import RequestError
from tracekit.messages import captures as messages
from tracekit.request.option import Option, Request, split_values


@dataclass(frozen=True, kw_only=True)
class ProgramOptions(Request):
    """How a program is captured."""

    train: Annotated[
        bool, Option("Of a program: a training step, forward, backward and the optimizer.", "Program: training step")
    ] = False
    optimizer: Annotated[
        str | None,
        Option("Of a program: adamw, adam or sgd, or fused-adamw and so on; default none.", "Program: optimizer"),
    ] = None
    autocast: Annotated[
        str | None, Option("Of a program: mixed precision, bf16 or fp16.", "Program: mixed precision", "TYPE")
    ] = None
    tf32: Annotated[bool, Option("Of a program: products of fp32 run in TF32.", "Program: TF32")] = False
    compile: Annotated[
        bool, Option("Of a program: torch.compile fuses its kernels, by rules.", "Program: torch.compile")
    ] = False
    cuda_graph: Annotated[bool, Option("Of a program: one CUDA graph launches all kernels.", "Program: CUDA graph")] = (
        False
    )
    seq: Annotated[
        int | None,
        Option(
            "Of a config: tokens of each sequence, default 2048.",
            "Config: tokens of a sequence",
            "N",
            minimum=1,
            maximum=MAX_COUNT,
        ),
    ] = None
    dtype: Annotated[
        str | None,
        Option(
            "Of a config: type of its parameters, bf16 (default), fp16 or fp32 (of a DLRM the default).",
            "Config: type of parameters",
            "TYPE",
        ),
    ] = None

    table: Annotated[
        str | Sequence[str],
        Option(
            "Of a DLRM's config: embedding tables in place of its own, [COUNT*]ROWSxWIDTH[:POOLING[:ALPHA]], such as "
            "26*1000000x128:20.",
            "DLRM: embedding tables",
            "TABLE",
        ),
    ] = ()
    bottom_mlp: Annotated[
        str | None,
        Option("Of a DLRM's config: widths of its bottom MLP, such as 512,256,128.", "DLRM: bottom MLP", "WIDTHS"),
    ] = None
    top_mlp: Annotated[
        str | None,
        Option("Of a DLRM's config: widths of its top MLP, such as 1024,512,1.", "DLRM: top MLP", "WIDTHS"),
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
        given = {field.name: getattr(self, field.name) for field in fields(CaptureOptions)}
        return CaptureOptions(**(given | {"table": split_values(self.table)}))

    def refuse_without_program(self) -> None:
        """Refuse options of programs for what is none.

        Raises:
            RequestError: One is given.
        """
        if self.capture != CaptureOptions():
            raise RequestError(messages.OPTIONS_OF_PROGRAMS())
