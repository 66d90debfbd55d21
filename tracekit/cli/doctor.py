"""``tracekit doctor``: grade a trace's suitability for predictions."""

from functools import partial

from tracekit.cli.options import Json, Memory, NoCache, Quiet, Ranks, Traces
from tracekit.cli.request_options import expand_requests
from tracekit.messages import requests
from tracekit.request import RunOptions


@expand_requests
def doctor(
    traces: Traces,
    request: RunOptions,
    ranks: Ranks = None,
    json: Json = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Grade a trace from A to D: what a good prediction lacks, what that costs, and how to record a better one.

    Example: tracekit doctor trace.json.gz

    Example: tracekit doctor traces/ --json
    """
    from tracekit.cli.output import emit
    from tracekit.cli.progress import show_progress
    from tracekit.cli.read import fill_source_gpu, read_traces
    from tracekit.doctor import examine
    from tracekit.render import doctor as render
    from tracekit.request import answers

    with show_progress(quiet, requests.EXAMINING) as stage:
        trace = read_traces(traces, ranks, no_cache, memory, stage)
        asked = fill_source_gpu(trace, request)
        measure = partial(answers.measure, trace, asked, stage)
        run = measure(rank=trace.ranks[0].rank)
        stage(requests.EXAMINING())
        diagnosis = examine(trace, run, measure=lambda rank: measure(rank=rank))
    emit(render.render_diagnosis(diagnosis), lambda: render.as_json(diagnosis), json=json)
