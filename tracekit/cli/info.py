"""``tracekit info``: what is in a trace."""

from tracekit.cli.options import Json, Memory, NoCache, Quiet, Ranks, SourceGpu, Stacks, Steps, Traces, Verbose


def info(
    traces: Traces,
    source_gpu: SourceGpu = None,
    steps: Steps = None,
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
    from tracekit.cli.read import read
    from tracekit.cli.screen import emit, progress
    from tracekit.render import json as as_json
    from tracekit.render import terminal
    from tracekit.render.check import as_dict, below
    from tracekit.replay.check import check
    from tracekit.replay.run import prepare
    from tracekit.reporting import build

    with progress(quiet) as stage:
        trace = read(traces, ranks, no_cache, memory, stage, stacks)
        run = prepare(trace, source_gpu=source_gpu, steps=steps, progress=stage)
        report = build(run)
        graph = check(run.graph) if verbose else None
    emit(
        below(terminal.info(report), graph),
        lambda: as_json.info(report, as_dict(graph)),
        json=json,
    )
