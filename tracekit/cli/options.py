"""Options shared by several commands; the same name means the same everywhere."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

T = TypeVar("T")


class OutputFormat(StrEnum):
    """Format of a report; also the suffix of its file."""

    HTML = "html"
    JSON = "json"
    MD = "md"
    XLSX = "xlsx"
    PARQUET = "parquet"
    CSV = "csv"
    TXT = "txt"


def _check_option(given: T, check: Callable[[T], object]) -> T:
    """Return the value unchanged after ``check`` accepts it; ``None`` isn't checked."""
    from tracekit.errors import TracekitError

    try:
        if given is not None:
            check(given)
    except TracekitError as error:
        raise typer.BadParameter(str(error)) from error
    return given


def _check_size(memory: str | None) -> str | None:
    from tracekit.ingest.memory import parse_memory_size

    return _check_option(memory, parse_memory_size)


def _check_prices(pairs: list[str]) -> list[str]:
    from tracekit.prediction.cost import parse_prices

    return _check_option(pairs, parse_prices)


def _check_batch_factor(batch: float | None) -> float | None:
    from tracekit.prediction import LayoutRequest

    return _check_option(batch, lambda factor: LayoutRequest(batch=factor))


def _check_schedule(name: str | None) -> str | None:
    from tracekit.parallelism.layout import parse_schedule

    return _check_option(name, parse_schedule)


Traces = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACE",
        help="PyTorch profiler traces of one job: .json, .gz, .zst, .zip; a directory, glob, URI, or - for stdin.",
        show_default=False,
    ),
]
Ranks = Annotated[
    int | None, typer.Option("--ranks", metavar="N", min=0, help="Measure one rank; default all, together.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Decode anew and don't cache.")]
Memory = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", callback=_check_size, help="The most that a trace may take, such as 2G."),
]
Stacks = Annotated[
    bool, typer.Option("--stacks", help="Also read Python's calls (with_stack=True): time by module, Python lines.")
]
Gpus = Annotated[
    list[str],
    typer.Option("--gpu", "-g", metavar="NAME", help="Target GPU; repeat for several. `tracekit gpus` lists them."),
]
Clusters = Annotated[
    list[str],
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="Target cluster, such as 4x8xh100-sxm@ndr400, or a TOML; repeatable. `tracekit clusters` lists them.",
        show_default=False,
    ),
]
Prices = Annotated[
    list[str],
    typer.Option(
        "--price",
        metavar="GPU=DOLLARS",
        callback=_check_prices,
        help="What an hour of one GPU costs, for $ per million tokens or samples, or 1,000 steps; repeatable.",
        show_default=False,
    ),
]
Samples = Annotated[
    float | None,
    typer.Option(
        "--samples",
        metavar="N",
        min=0,
        max=1e12,
        help="Samples per rank in a traced step, where the trace doesn't tell.",
    ),
]
WorldSize = Annotated[
    int | None, typer.Option("--world-size", metavar="N", min=1, help="Ranks of the job on the target.")
]
DataParallel = Annotated[
    int | None, typer.Option("--dp", metavar="N", min=1, help="Data-parallel ranks on the target.")
]
TensorParallel = Annotated[
    int | None,
    typer.Option("--tp", metavar="N", min=1, help="Tensor-parallel ranks on the target; of a one-GPU trace too."),
]
PipelineParallel = Annotated[
    int | None, typer.Option("--pp", metavar="N", min=1, help="Pipeline-parallel stages on the target.")
]
MicroBatches = Annotated[
    int | None,
    typer.Option("--micro-batches", metavar="N", min=1, help="Micro-batches of a step. Default: the trace's x --pp."),
]
PipelineSchedule = Annotated[
    str | None,
    typer.Option(
        "--pp-schedule",
        metavar="NAME",
        callback=_check_schedule,
        help="1f1b (default), zero-bubble (ZB-H1), interleaved (2 chunks of layers a stage), or interleaved:N.",
    ),
]
FullySharded = Annotated[
    bool,
    typer.Option(
        "--fsdp", help="FSDP: shard parameters, gradients and optimizer state of a one-GPU job over --dp ranks."
    ),
]
ExpertParallel = Annotated[
    int | None, typer.Option("--ep", metavar="N", min=1, help="Expert-parallel (MoE) ranks on the target.")
]
BatchFactor = Annotated[
    float | None,
    typer.Option(
        "--batch",
        metavar="FACTOR",
        callback=_check_batch_factor,
        help="Each rank's batch on the target, as a multiple of the trace's, such as 2 or 0.5.",
    ),
]
SourceCluster = Annotated[
    str | None,
    typer.Option("--source-cluster", metavar="NAME", help="The cluster of the trace, where its GPU doesn't tell."),
]
SourceGpu = Annotated[
    str | None,
    typer.Option("--source-gpu", metavar="NAME", help="The GPU of the trace, where it doesn't say or says it wrong."),
]
Steps = Annotated[
    str | None,
    typer.Option(
        "--steps",
        metavar="N[:M]",
        help="Steps to measure (ProfilerStep numbers; without these from 0); default all but the first of several.",
    ),
]
WithoutRules = Annotated[
    list[str],
    typer.Option(
        "--without-rule",
        metavar="NAME",
        help="Switch off an inference rule; repeatable. `tracekit info -v` lists them.",
        show_default=False,
    ),
]
Top = Annotated[int, typer.Option("--top", metavar="N", min=0, help="Kernels to list.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Format = Annotated[
    OutputFormat | None,
    typer.Option(
        "--format",
        metavar="FORM",
        help=f"What to print, or to write to the output: {', '.join(OutputFormat)}; default by its suffix.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Also write a file, in the form that its suffix names."),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite the output file.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also the dependency graph and its constants.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
