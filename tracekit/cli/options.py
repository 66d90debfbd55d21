"""Options that several verbs share; the same name means the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

TracePath = Annotated[
    Path,
    typer.Argument(metavar="TRACE", help="A PyTorch profiler trace, .json or .json.gz.", show_default=False),
]
Gpus = Annotated[
    list[str],
    typer.Option("--gpu", "-g", metavar="NAME", help="Target GPU; repeat for several. `tracekit gpus` lists them."),
]
SourceGpu = Annotated[
    str | None,
    typer.Option("--source-gpu", metavar="NAME", help="The GPU of the trace, where it doesn't say or says it wrong."),
]
Steps = Annotated[
    str | None,
    typer.Option("--steps", metavar="N[:M]", help="Steps to measure (ProfilerStep numbers); default all."),
]
Top = Annotated[int, typer.Option("--top", metavar="N", min=0, help="Kernels to list.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Also write to a file: .json or .txt.")
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite the output file.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
