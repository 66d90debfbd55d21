"""``tracekit capture``: a program that never ran, predicted from its code or its config."""

from typing import Annotated

import typer

from tracekit.cli.completion import complete_gpus
from tracekit.cli.options import Force, Json, Quiet
from tracekit.cli.options import Output as TraceFile
from tracekit.cli.request_options import expand_requests
from tracekit.request import Panel
from tracekit.request.program_options import ProgramOptions

SUFFIXES = (".json", ".gz")

ProgramName = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py:FUNCTION|CONFIG.json",
        help="A function that returns a model and its inputs, a Hugging Face config (needs transformers), or a DLRM's.",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu", "-g", metavar="NAME", help="A target GPU.", rich_help_panel=Panel.TARGET, autocompletion=complete_gpus
    ),
]
Batch = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="N",
        help="Samples of a step, or max for the most that a GPU's memory holds.",
        rich_help_panel=Panel.PROGRAM,
    ),
]
Longest = Annotated[
    bool,
    typer.Option(
        "--longest",
        help="Of a config: the longest sequences that a GPU's memory holds and the model takes.",
        rich_help_panel=Panel.PROGRAM,
    ),
]


@expand_requests
def capture(
    program: ProgramName,
    options: ProgramOptions,
    gpu: Targets = None,
    batch: Batch = None,
    longest: Longest = False,
    json: Json = False,
    output: TraceFile = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """How long a program that never ran would take on GPUs, from its code or config; needs PyTorch, no GPU.

    Example: tracekit capture model.py:make --gpu h100-sxm --train --optimizer adamw -o step.json.gz

    It runs once on tensors without data, so it takes no memory and downloads nothing. The output is a trace for the
    other commands, with the times of the first GPU.
    """
    from tracekit.capturing.named import NamedProgram, load_measured
    from tracekit.capturing.steps import predict_steps
    from tracekit.capturing.timed_trace import build_timed_trace
    from tracekit.cli.output import check_outputs, emit, write_files
    from tracekit.cli.progress import show_progress
    from tracekit.messages import requests
    from tracekit.render import captured as render

    paths = check_outputs(output, force, SUFFIXES, [program])
    with show_progress(quiet) as stage:
        stage(requests.CAPTURING())
        graph, measured = options.cuda_graph, load_measured(options.capture)
        named = NamedProgram(program, options.capture)
        steps = predict_steps(named, gpu or [], batch, cuda_graph=graph, longest=longest, measured=measured)
        first = steps[0]
        if paths:
            trace = build_timed_trace(first.program, first.prediction.gpu, cuda_graph=graph, measured=measured)
            write_files({path: trace.to_file(compress=path.suffix == ".gz") for path in paths}, quiet)
    emit(render.render_captured(steps), lambda: render.serialize_captured(steps), json=json)
