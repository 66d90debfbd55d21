"""Commands that predict and report: ``predict``, ``sweep``, ``search``, ``report``, ``shard``, ``capture``."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.arguments import (
    EngineName,
    Store,
    TracesOrProgram,
    WithDetails,
    complete_gpus,
    expand_groups,
)
from tracekit.cli.command import Reading, ReadingRanks, Reporting, Writing
from tracekit.errors import RequestError
from tracekit.escape import write_csv
from tracekit.messages import requests
from tracekit.messages.fleets import STORE_WITHOUT_ENGINE
from tracekit.request import Panel, PredictRequest, ReportRequest, ShardRequest, SweepRequest
from tracekit.request.program_options import ProgramOptions, SearchRequest

if TYPE_CHECKING:
    from tracekit.prediction.model import PredictedStep

MIN_MODELLED_PCT = 95.0
"""Percentage of kernel time that ``--strict`` requires."""
EXIT_NOT_COVERED = 4

Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help=f"Exit with 4 if less than {MIN_MODELLED_PCT:g} % of kernel time is modelled somewhere.",
        rich_help_panel=Panel.OUTPUT,
    ),
]


@expand_groups
def predict(
    traces: TracesOrProgram,
    request: PredictRequest,
    program: ProgramOptions,
    command: Reporting,
    engine: EngineName = None,
    store: Store = None,
    strict: Strict = False,
) -> None:
    """How long the traced step would take on other GPUs or clusters, and how sure that is.

    Example: tracekit predict trace.json.gz --gpu h100-sxm --cluster 4x8xb200@ndr400 -o prediction.html

    Example: tracekit predict trace.json.gz --gpu h100-sxm --price h100-sxm=2.49 --price a100-sxm-80gb=1.29

    Example: tracekit predict trace.json.gz --cluster 8xh100-sxm --dp 8 --json

    Example: tracekit predict trace.json.gz --gpu l40s -o - | less
    """
    from tracekit.analysis.binding_edges import run_self_check as check_graph
    from tracekit.capturing.options import is_program
    from tracekit.cli.output import format_command
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.render.terminal import append_graph_check, as_dict
    from tracekit.reporting import build_prediction_report
    from tracekit.request import answers

    if engine is not None and command.ranks is None and not is_program(traces):
        from tracekit.cli.fleet import predict_rank_by_rank

        program.refuse_without_program(request)
        found = predict_rank_by_rank(traces, program.move_tables(request), command, engine, store)
        _exit_if_unmodelled(strict, found.targets)
        return
    if store is not None and engine is None:
        raise RequestError(STORE_WITHOUT_ENGINE())
    to = command.settle_outputs(traces, has_targets=True)
    with command.show_progress(requests.PREDICTING, requests.BUILDING_REPORT) as stage:
        trace, request = command.read_or_capture(traces, request, program, stage)
        run = answers.measure(trace, request, stage)
        stage(requests.PREDICTING())
        predicted = answers.predict(run, request, stage)
        stage(requests.BUILDING_REPORT())
        report = build_prediction_report(predicted, format_command(), with_timelines=to.has_page)
        graph = check_graph(run.graph) if command.verbose else None
    command.deliver(
        report,
        to,
        trace,
        lambda one: append_graph_check(
            terminal.render_predicted(one, command.top, all_notes=command.verbose), graph, one.streams, one.copies
        ),
        lambda one: as_json.dump_prediction(one, graph=as_dict(graph)),
    )
    _exit_if_unmodelled(strict, report.targets)


def _exit_if_unmodelled(strict: bool, targets: "Iterable[PredictedStep]") -> None:
    """Exit if too little is modelled for ``--strict``."""
    from tracekit.cli.output import say

    least = min(targets, key=lambda target: target.coverage.modelled)
    if strict and least.coverage.modelled < MIN_MODELLED_PCT:
        modelled = f"{least.coverage.modelled:.1f} % of kernel time is modelled for {least.label}"
        say(f"tracekit: {modelled}, less than the {MIN_MODELLED_PCT:g} % of --strict")
        raise typer.Exit(EXIT_NOT_COVERED)


@expand_groups
def report(
    traces: TracesOrProgram,
    request: ReportRequest,
    program: ProgramOptions,
    command: Reporting,
) -> None:
    """Where the measured step's time goes and what holds it back.

    Example: tracekit report trace.json.gz --top 20 --what-if 'scale(family=gemm, 0.5)'

    Example: tracekit report traces/ -o report.html

    Example: tracekit report trace.json.gz --stacks --steps 7:9
    """
    from tracekit.analysis.binding_edges import run_self_check as check_graph
    from tracekit.cli.output import format_command
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.render.terminal import append_graph_check, as_dict
    from tracekit.request import answers

    to = command.settle_outputs(traces)
    with command.show_progress(requests.BUILDING_REPORT) as stage:
        trace, request = command.read_or_capture(traces, request, program, stage)
        run = answers.measure(trace, request, stage)
        stage(requests.BUILDING_REPORT())
        built = answers.report(run, request, format_command(), with_timelines=to.has_page)
        graph = check_graph(run.graph) if command.verbose else None
    command.deliver(
        built,
        to,
        trace,
        lambda one: append_graph_check(terminal.render_measured(one, command.top), graph, one.streams, one.copies),
        lambda one: as_json.dump_measured(one, command.top, as_dict(graph)),
    )


SWEEP_SUFFIXES = (".json", ".md", ".xlsx", ".csv", ".parquet", ".txt")
TopLayouts = Annotated[
    int, typer.Option("--top", metavar="N", min=1, help="Layouts to list.", rich_help_panel=Panel.OUTPUT)
]


@dataclass(frozen=True, kw_only=True)
class SweepCommand(ReadingRanks, Writing):
    """A sweep of the layouts of a job."""


@expand_groups
def sweep(
    traces: TracesOrProgram,
    request: SweepRequest,
    program: ProgramOptions,
    command: SweepCommand,
    top: TopLayouts = 20,
    with_details: WithDetails = False,
) -> None:
    """The traced job on many numbers of ranks: which layout gets most done, and from where on more ranks help less.

    Example: tracekit sweep trace.json.gz --cluster 64x8xh100-sxm@ndr400 --price h100-sxm=2.49

    Example: tracekit sweep traces/ --cluster 8xmi300x --tp 1 --tp 2 --batch max -o layouts.xlsx
    """
    from tracekit.capturing.options import is_program
    from tracekit.cli.output import list_private_names, say
    from tracekit.render import sweep as render
    from tracekit.render.private_details import remove_details
    from tracekit.render.screen import as_text
    from tracekit.reporting.sweep import SweepReport, build_sweep_report
    from tracekit.request import answers

    paths = command.check_outputs(SWEEP_SUFFIXES, traces)
    with command.show_progress(requests.PREDICTING_LAYOUTS) as stage:
        trace, left = command.read_or_capture(traces, request, program, stage)
        variants = [trace, *(program.capture_recomputed(traces[0], request) if is_program(traces) else ())]
        runs = [answers.measure(one, left, stage) for one in variants]
        stage(requests.PREDICTING_LAYOUTS())
        found = build_sweep_report(answers.sweep(runs, left))
    if paths:
        forms: dict[str, Callable[[SweepReport], str | bytes]] = {
            ".json": render.as_json,
            ".md": render.render_markdown,
            ".xlsx": render.render_workbook,
            ".csv": lambda one: write_csv(one.table),
            ".parquet": render.encode_parquet,
            ".txt": lambda one: as_text(render.render_sweep(one, top)),
        }
        shared = found if with_details else remove_details(found, list_private_names(trace))
        command.write({path: forms[path.suffix](shared) for path in paths})
        if not with_details and any(entry.prediction.price is not None for entry in found.entries):
            say(str(requests.PRICES_LEFT_OUT(paths=[*map(str, paths)])))
    command.emit(render.render_sweep(found, top), lambda: render.as_json(found))


VARIANT_SUFFIXES = (".html", ".json", ".md", ".xlsx", ".csv", ".parquet", ".txt")
ConfigName = Annotated[
    str, typer.Argument(metavar="CONFIG.json", help="The config.json of a Hugging Face model.", show_default=False)
]
TopVariants = Annotated[
    int, typer.Option("--top", metavar="N", min=1, help="Variants to list.", rich_help_panel=Panel.OUTPUT)
]


@expand_groups
def search(config: ConfigName, request: SearchRequest, command: Writing, top: TopVariants = 20) -> None:
    """How long many variants of a model would take: layers, widths, heads, experts in all combinations.

    Example: tracekit search config.json --vary num_hidden_layers=12,24 --vary hidden_size=1024:4096:512 --gpu h100-sxm

    Equal layers are captured once and kernels of the same sizes predicted once. What is impossible is left out, with
    the reason. `-o variants.html` draws time over parameters.
    """
    from tracekit.escape import write_csv
    from tracekit.render import search as render
    from tracekit.render.screen import as_text
    from tracekit.render.tables import render_sheets, to_parquet
    from tracekit.request import answers

    paths = command.check_outputs(VARIANT_SUFFIXES, [config])
    with command.show_progress() as stage:
        found = answers.search(config, request, stage)
    forms: dict[str, Callable[[], str | bytes]] = {
        ".html": lambda: render.render_page(found, Path(config).name),
        ".json": lambda: render.as_json(found),
        ".md": lambda: render.render_markdown(found),
        ".xlsx": lambda: render_sheets({"variants": found.table}),
        ".csv": lambda: write_csv(found.table),
        ".parquet": lambda: to_parquet(found.table),
        ".txt": lambda: as_text(render.render_variants(found, top)),
    }
    command.write({path: forms[path.suffix]() for path in paths})
    command.emit(render.render_variants(found, top), lambda: render.as_json(found))


PLAN_SUFFIXES = (".json", ".csv", ".parquet", ".txt")
Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TRACE...|TABLES.json]", help="Traces of one job, or a file of tables.", show_default=False
    ),
]
TopRanks = Annotated[
    int, typer.Option("--top", metavar="N", min=1, help="Ranks to list.", rich_help_panel=Panel.OUTPUT)
]


@dataclass(frozen=True, kw_only=True)
class ShardCommand(Reading, Writing):
    """A plan of embedding tables."""


@expand_groups
def shard(
    request: ShardRequest,
    command: ShardCommand,
    sources: Sources = None,
    top: TopRanks = 8,
) -> None:
    """How to shard a recommender's embedding tables: which plan is fastest, by its slowest rank, and what it needs.

    `-o plan.json` writes the fastest plan in torchrec's form, .csv and .parquet its shards.

    Example: tracekit shard --table '26*40Mx128:1' --batch 8192 --cluster 8xh100-sxm -o plan.json
    """
    from tracekit.escape import write_csv
    from tracekit.render import shard as render
    from tracekit.render.screen import as_text
    from tracekit.render.tables import to_parquet
    from tracekit.request import answers
    from tracekit.sharding.plan import encode_torchrec_plan
    from tracekit.sharding.tables import is_table_file

    given = sources or []
    paths = command.check_outputs(PLAN_SUFFIXES, given)
    with command.show_progress() as stage:
        is_file = len(given) == 1 and is_table_file(Path(given[0]))
        trace = command.read(given, stage) if given and not is_file else None
        found = answers.shard(given[0] if is_file else trace, request, stage)
    best = min(found, key=lambda plans: plans.best.time_us).best
    screen = render.render_plans(found, top)
    forms: dict[str, Callable[[], str | bytes]] = {
        ".json": lambda: encode_torchrec_plan(best),
        ".csv": lambda: write_csv(best.shards),
        ".parquet": lambda: to_parquet(best.shards),
        ".txt": lambda: as_text(screen),
    }
    command.write({path: forms[path.suffix]() for path in paths})
    command.emit(screen, lambda: render.as_json(found))


CAPTURE_SUFFIXES = (".json", ".gz")

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


@expand_groups
def capture(
    program: ProgramName,
    options: ProgramOptions,
    command: Writing,
    gpu: Targets = None,
    batch: Batch = None,
    longest: Longest = False,
) -> None:
    """How long a program that never ran would take on GPUs, from its code or config; needs PyTorch, no GPU.

    Example: tracekit capture model.py:make --gpu h100-sxm --train --optimizer adamw -o step.json.gz

    It runs once on tensors without data, so it takes no memory and downloads nothing. The output is a trace for the
    other commands, with the times of the first GPU. `tracekit predict` takes programs, too: use it for prices,
    clusters, layouts and a page; this command for the trace, the largest batch and the longest sequence of each GPU.
    """
    from tracekit.capturing.options import is_training_file
    from tracekit.capturing.steps import NamedProgram, load_measured, predict_steps
    from tracekit.capturing.timed_trace import build_timed_trace
    from tracekit.messages import requests
    from tracekit.render import captured as render

    paths = command.check_outputs(CAPTURE_SUFFIXES, [program])
    with command.show_progress() as stage:
        stage(requests.CAPTURING())
        options = options.join_training_file(program) if is_training_file(program) else options
        graph, measured = options.capture.cuda_graph, load_measured(options.capture)
        named = NamedProgram(program, options.capture)
        steps = predict_steps(named, gpu or [], batch, cuda_graph=graph, longest=longest, measured=measured)
        first = steps[0]
        if paths:
            trace = build_timed_trace(first.program, first.prediction.gpu, cuda_graph=graph, measured=measured)
            command.write({path: trace.to_file(compress=path.suffix == ".gz") for path in paths})
    command.emit(render.render_captured(steps), lambda: render.serialize_captured(steps))
