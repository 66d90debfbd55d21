"""``tracekit report``: show where the measured time goes."""

from tracekit.cli.options import (
    Force,
    Format,
    Json,
    Memory,
    NoCache,
    Quiet,
    Ranks,
    ReportOutput,
    Stacks,
    Top,
    TracesOrProgram,
    Verbose,
    WithDetails,
)
from tracekit.cli.request_options import expand_requests
from tracekit.messages import requests
from tracekit.request import ReportRequest
from tracekit.request.program_options import ProgramOptions


@expand_requests
def report(
    traces: TracesOrProgram,
    request: ReportRequest,
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
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Where the measured step's time goes and what holds it back.

    Example: tracekit report trace.json.gz --top 20 --what-if 'scale(family=gemm, 0.5)'

    Example: tracekit report traces/ -o report.html

    Example: tracekit report trace.json.gz --stacks --steps 7:9
    """
    from tracekit.analysis.self_check import run_self_check as check_graph
    from tracekit.cli.progress import show_progress
    from tracekit.cli.read import read_or_capture
    from tracekit.cli.report_output import ReportForms, deliver_report, format_command, settle_outputs
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.render.terminal import append_graph_check, as_dict
    from tracekit.request import answers

    to = settle_outputs(form, output, force, traces, json=json)
    with show_progress(quiet, requests.BUILDING_REPORT) as stage:
        trace, request = read_or_capture(traces, request, program, ranks, no_cache, memory, stage, stacks)
        run = answers.measure(trace, request, stage)
        stage(requests.BUILDING_REPORT())
        built = answers.report(run, request, format_command())
        graph = check_graph(run.graph) if verbose else None
    deliver_report(
        built,
        ReportForms(
            lambda one: append_graph_check(terminal.render_measured(one, top), graph, one.streams, one.copies),
            lambda one: as_json.dump_measured(one, top, as_dict(graph)),
        ),
        to,
        trace=trace,
        with_details=with_details,
        quiet=quiet,
    )
