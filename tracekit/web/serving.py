"""Tell what users of a served model wait for, as ``tracekit serving`` does, within what one request may take."""

from threading import Semaphore
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.responses import HTMLResponse, Response

from predictors import PredictorError
from tracekit.errors import TracekitError
from tracekit.messages import front_ends
from tracekit.render import serving as render
from tracekit.request import ServingRequest
from tracekit.request.answers import serving
from tracekit.served.answer import ServedTarget
from tracekit.web.access import Owner, document_refusals
from tracekit.web.errors import BusyError, WebError, serialize_error
from tracekit.web.responses import render_page

MAX_TEXT = 20_000
MAX_GPUS, MAX_TOKENS = 8, 1_000_000
"""Of an answer on the page, which takes a few seconds; the command line takes more."""
MAX_WAIT_S = 20.0
SIMULATIONS = Semaphore(1)
"""Simulations that run at once."""

Config = Annotated[str, Query(max_length=MAX_TEXT, description="The text of the model's config.json.")]
Gpus = Annotated[str, Query(max_length=400, description="Target GPUs, separated by commas, such as h100-sxm,b200.")]
Engine = Annotated[str, Query(max_length=40, description="The engine: vllm, sglang or trtllm, with ==VERSION or not.")]
Ranks = Annotated[int, Query(ge=1, le=64, description="GPUs that share each layer.")]
AtOnce = Annotated[int, Query(ge=1, le=1024, description="Requests under way at any time.")]
Rate = Annotated[float | None, Query(ge=1e-3, le=1e4, description="Requests a second instead, at random.")]
Tokens = Annotated[int, Query(ge=1, le=MAX_TOKENS, description="Tokens of each prompt or answer.")]
Precision = Annotated[str, Query(max_length=20, description="Format of the weights; empty: as the config says.")]
Price = Annotated[str, Query(max_length=400, description="Dollars for an hour of a GPU: h100-sxm=2.49, by commas.")]
Limit = Annotated[str, Query(max_length=20, description="Longest time, such as 500ms; empty without a limit.")]

router = APIRouter()


@router.get("/serving", include_in_schema=False)
def show_served(
    owner: Owner,
    config: Config = "",
    gpu: Gpus = "",
    framework: Engine = "vllm",
    tp: Ranks = 1,
    concurrency: AtOnce = 32,
    input_tokens: Tokens = 1024,
    output_tokens: Tokens = 1024,
    precision: Precision = "",
    price: Price = "",
) -> HTMLResponse:
    """The form, and the answer to what it holds."""
    del owner
    entered: dict[str, Any] = {"config": config, "gpu": gpu, "framework": framework, "tp": tp}
    entered |= {"concurrency": concurrency, "input_tokens": input_tokens, "output_tokens": output_tokens}
    entered |= {"precision": precision, "price": price}
    text, chart, refused, status = "", "", None, 200
    if config.strip() or gpu.strip():
        try:
            found = _serve(config, gpu, price, _ask(entered))
            text, chart = render.render_text(found), render.draw_curve(found)
        except (TracekitError, PredictorError) as error:
            refused, status = serialize_error(error), error.status if isinstance(error, WebError) else 400
    context = {"entered": entered, "text": text, "chart": chart, "refused": refused, "query": urlencode(entered)}
    return render_page("serving.html", status, **context)


@router.get(
    "/api/v1/serving.json",
    tags=["serving"],
    summary="Tell what users of a served model wait for",
    response_class=Response,
    responses=document_refusals(400) | {200: {"content": {"application/json": {}}}},
)
def get_served(
    owner: Owner,
    config: Config,
    gpu: Gpus,
    framework: Engine = "vllm",
    tp: Ranks = 1,
    concurrency: AtOnce = 32,
    rate: Rate = None,
    input_tokens: Tokens = 1024,
    output_tokens: Tokens = 1024,
    precision: Precision = "",
    price: Price = "",
    ttft_below: Limit = "",
    tpot_below: Limit = "",
) -> Response:
    """Time to the first token, time per token, tokens a second and a dollar of a served model under a load."""
    del owner
    given = {"framework": framework, "tp": tp, "input_tokens": input_tokens, "output_tokens": output_tokens}
    given |= {"precision": precision, "ttft_below": ttft_below, "tpot_below": tpot_below}
    load: dict[str, Any] = {"concurrency": concurrency} if rate is None else {"rate": rate}
    return Response(render.as_json(_serve(config, gpu, price, _ask(given | load))), media_type="application/json")


def _ask(entered: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are given, without those of this page alone; empty text is none."""
    return {name: value for name, value in entered.items() if name not in ("config", "gpu", "price") and value != ""}


def _serve(config: str, gpu: str, price: str, options: dict[str, Any]) -> list[ServedTarget]:
    gpus, prices = ([one.strip() for one in text.split(",") if one.strip()] for text in (gpu, price))
    if ".toml" in f"{gpu},{price}".lower():
        raise WebError(front_ends.SERVER_READS_NO_FILES(value=gpu))
    request = ServingRequest(gpu=gpus, price=prices, **options)
    if len(gpus) > MAX_GPUS or {one.lower() for one in gpus} & {"all", "datacenter", "consumer"}:
        raise WebError(front_ends.TOO_MANY_SERVED_GPUS(most=MAX_GPUS))
    if not SIMULATIONS.acquire(timeout=MAX_WAIT_S):
        raise BusyError(front_ends.PLANNER_BUSY())
    try:
        return serving(config.encode(), request)
    finally:
        SIMULATIONS.release()
