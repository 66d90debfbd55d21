"""``tracekit shard``: plan how embedding tables are sharded over a cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import Force, Json, Memory, NoCache, Output, Quiet
from tracekit.cli.request_options import expand_requests
from tracekit.request import Panel, ShardRequest

SUFFIXES = (".json", ".csv", ".parquet", ".txt")
Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TRACE...|TABLES.json]", help="Traces of one job, or a file of tables.", show_default=False
    ),
]
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="Ranks to list.", rich_help_panel=Panel.OUTPUT)]


@expand_requests
def shard(
    request: ShardRequest,
    sources: Sources = None,
    top: Top = 8,
    json: Json = False,
    output: Output = None,
    force: Force = False,
    no_cache: NoCache = False,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """How to shard a recommender's embedding tables: which plan is fastest, by its slowest rank, and what it needs.

    `-o plan.json` writes the fastest plan in torchrec's form, .csv and .parquet its shards.

    Example: tracekit shard --table 26*40Mx128:1 --batch 8192 --cluster 8xh100-sxm -o plan.json
    """
    from tracekit.cli.output import check_outputs, emit, write_files
    from tracekit.cli.progress import show_progress
    from tracekit.cli.read import read_traces
    from tracekit.escape import write_csv
    from tracekit.render import shard as render
    from tracekit.render.screen import as_text
    from tracekit.render.tables import to_parquet
    from tracekit.request import answers
    from tracekit.sharding.table_file import is_table_file
    from tracekit.sharding.torchrec_plan import encode_torchrec_plan

    given = sources or []
    paths = check_outputs(output, force, SUFFIXES, given)
    with show_progress(quiet) as stage:
        is_file = len(given) == 1 and is_table_file(Path(given[0]))
        trace = read_traces(given, None, no_cache, memory, stage) if given and not is_file else None
        found = answers.shard(given[0] if is_file else trace, request, stage)
    best = min(found, key=lambda plans: plans.best.time_us).best
    screen = render.render_plans(found, top)
    forms: dict[str, Callable[[], str | bytes]] = {
        ".json": lambda: encode_torchrec_plan(best),
        ".csv": lambda: write_csv(best.shards),
        ".parquet": lambda: to_parquet(best.shards),
        ".txt": lambda: as_text(screen),
    }
    write_files({path: forms[path.suffix]() for path in paths}, quiet)
    emit(screen, lambda: render.as_json(found), json=json)
