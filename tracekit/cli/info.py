"""``tracekit info``: summarize a trace's content."""

from tracekit.cli.options import (
    Json,
    Memory,
    NoCache,
    Quiet,
    Ranks,
    SourceGpu,
    Stacks,
    Steps,
    Traces,
    Verbose,
    WithoutRules,
)


def info(
    traces: Traces,
    source_gpu: SourceGpu = None,
    steps: Steps = None,
    without_rule: WithoutRules = [],  # noqa: B006 - typer makes a new one
    ranks: Ranks = None,
    json: Json = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    stacks: Stacks = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """What is in a trace: GPU, steps, how much can be modelled, how well the replay fits.

    Example: tracekit info trace.json.gz
    """
    from tracekit.analysis.self_check import run_self_check
    from tracekit.cli.output import emit, show_progress
    from tracekit.cli.read import read_traces
    from tracekit.inference_rules import INFERENCE_RULES
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.render.graph_check import append_graph_check, as_dict
    from tracekit.render.inference_rules import append_rules
    from tracekit.reporting import build_report
    from tracekit.run import prepare_run

    with show_progress(quiet) as stage:
        trace = read_traces(traces, ranks, no_cache, memory, stage, stacks)
        run = prepare_run(trace, source_gpu=source_gpu, steps=steps, without_rules=without_rule, progress=stage)
        report = build_report(run)
        graph = run_self_check(run.graph) if verbose else None
    shown = append_graph_check(terminal.render_info(report), graph)
    emit(
        append_rules(shown, INFERENCE_RULES, without_rule) if verbose else shown,
        lambda: as_json.dump_info(report, as_dict(graph)),
        json=json,
    )
