"""``tracekit predict``: predict the traced step on other GPUs."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.options import (
    EngineName,
    Force,
    Format,
    Json,
    Memory,
    NoCache,
    Quiet,
    Ranks,
    ReportOutput,
    Stacks,
    Store,
    Top,
    TracesOrProgram,
    Verbose,
    WithDetails,
)
from tracekit.cli.request_options import expand_requests
from tracekit.errors import RequestError
from tracekit.messages import requests
from tracekit.messages.fleets import STORE_WITHOUT_ENGINE
from tracekit.request import Panel, PredictRequest
from tracekit.request.program_options import ProgramOptions

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


@expand_requests
def predict(
    invocation: typer.Context,
    traces: TracesOrProgram,
    request: PredictRequest,
    program: ProgramOptions,
    top: Top = 10,
    ranks: Ranks = None,
    json: Json = False,
    form: Format = None,
    output: ReportOutput = None,
    force: Force = False,
    with_details: WithDetails = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    stacks: Stacks = False,
    engine: EngineName = None,
    store: Store = None,
    strict: Strict = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """How long the traced step would take on other GPUs or clusters, and how sure that is.

    Example: tracekit predict trace.json.gz --gpu h100-sxm --cluster 4x8xb200@ndr400 -o prediction.html

    Example: tracekit predict trace.json.gz --gpu h100-sxm --price h100-sxm=2.49 --price a100-sxm-80gb=1.29

    Example: tracekit predict trace.json.gz --cluster 8xh100-sxm --dp 8 --json

    Example: tracekit predict trace.json.gz --gpu l40s -o - | less
    """
    from tracekit.analysis.self_check import run_self_check as check_graph
    from tracekit.cli.progress import show_progress
    from tracekit.cli.read import read_or_capture
    from tracekit.cli.report_output import ReportForms, deliver_report, format_command, settle_outputs
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.render.terminal import append_graph_check, as_dict
    from tracekit.reporting import build_prediction_report
    from tracekit.request import answers

    if engine is not None:
        from tracekit.cli.fleet import FleetArguments, predict_rank_by_rank, refuse_other_options

        refuse_other_options(invocation)
        given = FleetArguments(
            engine, store, top, json, form, output, force, with_details, no_cache, memory, verbose, quiet
        )
        _exit_if_unmodelled(strict, predict_rank_by_rank(traces, request, given).targets)
        return
    if store is not None:
        raise RequestError(STORE_WITHOUT_ENGINE())
    to = settle_outputs(form, output, force, traces, json=json, has_targets=True)
    with show_progress(quiet, requests.PREDICTING, requests.BUILDING_REPORT) as stage:
        trace, request = read_or_capture(traces, request, program, ranks, no_cache, memory, stage, stacks)
        run = answers.measure(trace, request, stage)
        stage(requests.PREDICTING())
        predicted = answers.predict(run, request, stage)
        stage(requests.BUILDING_REPORT())
        report = build_prediction_report(predicted, format_command())
        graph = check_graph(run.graph) if verbose else None
    deliver_report(
        report,
        ReportForms(
            lambda one: append_graph_check(
                terminal.render_predicted(one, top, all_notes=verbose), graph, one.streams, one.copies
            ),
            lambda one: as_json.dump_prediction(one, graph=as_dict(graph)),
        ),
        to,
        trace=trace,
        with_details=with_details,
        quiet=quiet,
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
