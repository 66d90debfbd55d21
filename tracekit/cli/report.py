"""``tracekit report``: show where the measured time goes."""

from tracekit.cli.options import (
    Force,
    Format,
    Json,
    Memory,
    NoCache,
    Output,
    Quiet,
    Ranks,
    SourceGpu,
    Stacks,
    Steps,
    Top,
    Traces,
    Verbose,
    WithoutRules,
)
from tracekit.cli.what_if_options import HostSpeed, UnprofiledStep, WhatIfs, parse_time_us


def report(
    traces: Traces,
    source_gpu: SourceGpu = None,
    steps: Steps = None,
    without_rule: WithoutRules = [],  # noqa: B006
    what_if: WhatIfs = [],  # noqa: B006 - typer makes a new one
    host_speed: HostSpeed = None,
    unprofiled_step: UnprofiledStep = None,
    top: Top = 10,
    ranks: Ranks = None,
    json: Json = False,
    form: Format = None,
    output: Output = None,
    force: Force = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    stacks: Stacks = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Where the measured step's time goes and what holds it back.

    Example: tracekit report trace.json.gz --top 20 --what-if 'scale(family=gemm, 0.5)'
    """
    from tracekit.analysis.self_check import run_self_check as check_graph
    from tracekit.cli.output import show_progress
    from tracekit.cli.read import read_traces
    from tracekit.cli.report_output import check_format, deliver_report, format_command
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.render.graph_check import append_graph_check, as_dict
    from tracekit.reporting import build_report
    from tracekit.run import prepare_run
    from tracekit.whatif.requested import apply_requested_edits, parse_edits

    check_format(form, output, force, traces)
    edits = parse_edits(what_if, host_speed)
    with show_progress(quiet) as stage:
        trace = read_traces(traces, ranks, no_cache, memory, stage, stacks)
        run = prepare_run(trace, source_gpu=source_gpu, steps=steps, without_rules=without_rule, progress=stage)
        edited = apply_requested_edits(run, edits, parse_time_us(unprofiled_step))
        built = build_report(edited.original_run, command=format_command(), what_if=edited)
        graph = check_graph(run.graph) if verbose else None
    deliver_report(
        built,
        append_graph_check(terminal.render_measured(built, top), graph, built.streams),
        lambda: as_json.dump_measured(built, top, as_dict(graph)),
        json=json,
        form=form,
        output=output,
        quiet=quiet,
    )
