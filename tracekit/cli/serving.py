"""The command ``serving``: what users of a served model wait for under a load."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from tracekit.cli.arguments import expand_groups
from tracekit.cli.command import Reading, Writing
from tracekit.request import ServingRequest

SERVING_SUFFIXES = (".json", ".svg", ".html", ".csv", ".txt")
Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="CONFIG.json [TRACE...]",
        help="The config.json of a language model; and traces of its engine, whose steps calibrate the answer.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ServingCommand(Reading, Writing):
    """A load on a served model."""


@expand_groups
def serving(sources: Sources, request: ServingRequest, command: ServingCommand) -> None:
    """How a served model does under a load: time to the first token, time per token, tokens a second and a dollar.

    Without a load it tells what fits and the curve of throughput over latency.

    Example: tracekit serving config.json --gpu h100-sxm --gpu b200 --framework vllm --tp 2 --concurrency 32

    Example: tracekit serving config.json --gpu h200 --rate 4 --input-tokens 4096 --output-tokens 512 --price 3.5

    Example: tracekit serving config.json trace.json.gz --gpu h100-sxm --gpu b200 --rate 2

    Example: tracekit serving config.json --gpu h100-sxm --ttft-below 500ms --tpot-below 30ms -o curve.svg
    """
    from tracekit.escape import write_csv
    from tracekit.render import serving as render
    from tracekit.render.screen import as_text
    from tracekit.request import answers

    config, *paths_of_traces = sources
    paths = command.check_outputs(SERVING_SUFFIXES, sources)
    with command.show_progress() as stage:
        traces = [command.read([one], stage) for one in paths_of_traces]
        found = answers.serving(config, request, traces, stage)
    screen = render.render_served(found)
    forms: dict[str, Callable[[], str | bytes]] = {
        ".json": lambda: render.as_json(found),
        ".svg": lambda: render.draw_curve(found),
        ".html": lambda: render.render_page(found),
        ".csv": lambda: write_csv(render.list_rows(found)),
        ".txt": lambda: as_text(screen),
    }
    command.write({path: forms[path.suffix]() for path in paths})
    command.emit(screen, lambda: render.as_json(found))
