"""Plan how embedding tables are sharded, as ``tracekit shard --table`` does, within what one request may take."""

from enum import StrEnum
from threading import Semaphore
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.responses import HTMLResponse, Response

from predictors import PredictorError
from tracekit.comm import list_clusters, load_cluster
from tracekit.errors import TracekitError
from tracekit.messages import front_ends
from tracekit.render import shard as render
from tracekit.request import ShardRequest
from tracekit.request.answers import shard
from tracekit.sharding import ShardingPlans
from tracekit.sharding.plan import encode_torchrec_plan
from tracekit.web.access import Owner, document_refusals
from tracekit.web.errors import BusyError, WebError, serialize_error
from tracekit.web.responses import render_page

MAX_TABLES, MAX_RANKS = 200, 64
"""Of a plan on the page, which takes a few seconds; the command line takes more."""
MAX_TEXT = 4000
MAX_WAIT_S = 20.0
SEARCHES = Semaphore(1)
"""Searches that run at once."""

Tables = Annotated[
    str, Query(max_length=MAX_TEXT, description="A kind of tables a line: [COUNT*]ROWSxWIDTH[:POOLING[:ALPHA]].")
]
ClusterName = Annotated[str, Query(max_length=80, description="The cluster, such as 8xh100-sxm.")]
Batch = Annotated[int, Query(ge=1, le=10**9, description="Samples of a rank in a step.")]
Optimizer = Annotated[str, Query(max_length=40, description="What updates the tables; empty: rowwise_adagrad.")]


class PlanForm(StrEnum):
    """What a plan is given as."""

    JSON = "json"
    TORCHREC = "torchrec"


router = APIRouter()


@router.get("/shard", include_in_schema=False)
def show_plans(
    owner: Owner, tables: Tables = "", cluster: ClusterName = "", batch: Batch = 8192, optimizer: Optimizer = ""
) -> HTMLResponse:
    """The form, and the plans for what it holds."""
    del owner
    entered = {"tables": tables, "cluster": cluster, "batch": batch, "optimizer": optimizer}
    found, refused, status = None, None, 200
    if tables.strip() or cluster.strip():
        try:
            found = _find_plans(tables, cluster, batch, optimizer)
        except (TracekitError, PredictorError) as error:
            refused, status = serialize_error(error), error.status if isinstance(error, WebError) else 400
    context: dict[str, Any] = {"entered": entered, "found": found, "refused": refused, "query": urlencode(entered)}
    rows = [render.list_cells(plan) for plan in found.plans] if found else []
    headings = render.COMPARISON_HEADINGS
    return render_page("shard.html", status, clusters=list_clusters(), headings=headings, rows=rows, **context)


@router.get(
    "/api/v1/shard.{form}",
    tags=["sharding"],
    summary="Plan how embedding tables are sharded",
    response_class=Response,
    responses=document_refusals(400) | {200: {"content": {"application/json": {}}}},
)
def get_plans(
    owner: Owner, form: PlanForm, tables: Tables, cluster: ClusterName, batch: Batch, optimizer: Optimizer = ""
) -> Response:
    """The fastest ways to split embedding tables over the GPUs of a cluster, or the fastest as torchrec's plan."""
    del owner
    found = _find_plans(tables, cluster, batch, optimizer)
    content = encode_torchrec_plan(found.best) if form is PlanForm.TORCHREC else render.as_json([found])
    return Response(content, media_type="application/json")


def _find_plans(tables: str, cluster: str, batch: int, optimizer: str) -> ShardingPlans:
    specs = [line.strip() for line in tables.splitlines() if line.strip()]
    if ".toml" in cluster.lower():
        raise WebError(front_ends.SERVER_READS_NO_FILES(value=cluster))
    request = ShardRequest(cluster=cluster.strip(), table=specs, batch=batch, optimizer=optimizer.strip() or None)
    ranks, count = load_cluster(cluster.strip()).gpus, request.count_tables()
    if count > MAX_TABLES or ranks > MAX_RANKS:
        raise WebError(
            front_ends.PLAN_TOO_LARGE(tables=count, most_tables=MAX_TABLES, ranks=ranks, most_ranks=MAX_RANKS)
        )
    if not SEARCHES.acquire(timeout=MAX_WAIT_S):
        raise BusyError(front_ends.PLANNER_BUSY())
    try:
        return shard(None, request)[0]
    finally:
        SEARCHES.release()
