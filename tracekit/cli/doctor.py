"""``tracekit doctor``: how good a trace is for predictions."""

from tracekit.cli.options import Json, Memory, NoCache, Quiet, Ranks, SourceGpu, Steps, Traces


def doctor(
    traces: Traces,
    source_gpu: SourceGpu = None,
    steps: Steps = None,
    ranks: Ranks = None,
    json: Json = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Grade a trace from A to D: what a good prediction lacks, what that costs, and how to record a better one.

    Example: tracekit doctor trace.json.gz
    """
    from tracekit.cli.read import read
    from tracekit.cli.screen import emit, progress
    from tracekit.doctor import examine
    from tracekit.render import doctor as render
    from tracekit.replay.run import prepare

    with progress(quiet) as stage:
        trace = read(traces, ranks, no_cache, memory, stage)
        run = prepare(trace, source_gpu=source_gpu, steps=steps, rank=trace.ranks[0].rank, progress=stage)
        stage("examine")
        diagnosis = examine(trace, run)
    emit(render.screen(diagnosis), lambda: render.as_json(diagnosis), json=json)
