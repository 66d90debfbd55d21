"""``tracekit info``: summarize a trace's content."""

from tracekit.cli.options import Json, Memory, NoCache, Quiet, Ranks, Stacks, Traces, Verbose
from tracekit.cli.request_options import expand_requests
from tracekit.request import RunOptions


@expand_requests
def info(
    traces: Traces,
    request: RunOptions,
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

    Example: tracekit info traces/ -v
    """
    from tracekit.analysis.self_check import run_self_check
    from tracekit.cli.output import emit
    from tracekit.cli.progress import show_progress
    from tracekit.cli.read import fill_source_gpu, read_traces
    from tracekit.inference_rules import INFERENCE_RULES
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.render.terminal import append_graph_check, append_rules, as_dict
    from tracekit.reporting import build_report
    from tracekit.request import answers
    from tracekit.request.option import split_values

    with show_progress(quiet) as stage:
        trace = read_traces(traces, ranks, no_cache, memory, stage, stacks)
        run = answers.measure(trace, fill_source_gpu(trace, request), stage)
        report = build_report(run)
        graph = run_self_check(run.graph) if verbose else None
    shown = append_graph_check(terminal.render_info(report), graph)
    emit(
        append_rules(shown, INFERENCE_RULES, split_values(request.without_rule)) if verbose else shown,
        lambda: as_json.dump_info(report, as_dict(graph)),
        json=json,
    )
