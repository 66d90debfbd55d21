"""Tell what users of a served model wait for, as ``tracekit serving`` does, within what one request may take."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from threading import Semaphore
from typing import Annotated, Any, ClassVar
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from predictors import PredictorError
from tracekit.errors import TracekitError
from tracekit.messages import front_ends
from tracekit.prediction.targets import GPU_GROUPS
from tracekit.render import serving as render
from tracekit.request import Panel, ServingRequest, list_fields
from tracekit.request.answers import serving
from tracekit.request.option import split_values
from tracekit.request.options.serving import DEFAULT_TOKENS
from tracekit.served.answer import MAX_CURVE, ServedTarget
from tracekit.served.simulate import RATE_REQUESTS, WAVES
from tracekit.web.access import Owner, document_refusals
from tracekit.web.ask import LimitedRequest
from tracekit.web.errors import BusyError, WebError, serialize_error
from tracekit.web.form import Entered, collect_values, explain_type, find_named_field
from tracekit.web.responses import render_page

MAX_TEXT = 20_000
MAX_COMPARED = 8
MAX_SERVED_TOKENS = 50_000_000
"""Output tokens of a load, which take the loop a few seconds; the command line takes more."""
MAX_WAIT_S = 20.0
SIMULATIONS = Semaphore(1)
"""Simulations that run at once."""


@dataclass(frozen=True, kw_only=True)
class ServingAsk(LimitedRequest, ServingRequest):
    """A served model under a load; names and meanings as on the command line."""

    lengths: ClassVar[None] = None  # type: ignore[misc]
    """No option here: the server reads no file that a request names."""
    source_gpu: ClassVar[None] = None  # type: ignore[misc]
    """Likewise: there is no trace."""

    def check(self) -> None:
        """Check all options, and the server's limits first.

        Raises:
            WebError: It asks for too much at once.
            TracekitError: An option has an impossible value.
            PredictorError: A GPU's name is unknown or ambiguous.
        """
        gpus, clusters = split_values(self.gpu), split_values(self.cluster)
        most = max(len(gpus) + len(clusters), len(split_values(self.concurrency)))
        if most > MAX_COMPARED or {one.lower() for one in gpus} & set(GPU_GROUPS):
            raise WebError(front_ends.TOO_MANY_SERVED_GPUS(most=MAX_COMPARED))
        super().check()
        at_once = max(MAX_CURVE, *self.concurrencies, 0)
        tokens = (self.requests or max(WAVES * at_once, RATE_REQUESTS)) * (self.output_tokens or DEFAULT_TOKENS)
        if tokens > MAX_SERVED_TOKENS:
            raise WebError(front_ends.SERVED_LOAD_TOO_LARGE(most=MAX_SERVED_TOKENS, tokens=tokens))


ASK = TypeAdapter(ServingAsk)
FIELDS = {field.name: field for field in list_fields(ServingAsk)}
SHOWN_FIRST = ("gpu", "framework", "tp", "concurrency", "input_tokens", "output_tokens", "precision", "price")
"""Options of the form that stand outside its fold."""

Config = Annotated[str, Query(max_length=MAX_TEXT, description="The text of the model's config.json.")]

router = APIRouter()


def describe_options() -> dict[str, Any]:
    """Describe the options as parameters of an OpenAPI operation."""
    parameters = []
    for name, described in ASK.json_schema()["properties"].items():
        kinds = [one for one in described.get("anyOf", [described]) if one.get("type") not in ("null", "object")]
        schema = next((one for one in kinds if one.get("type") == "array"), kinds[0])
        parameters.append({"name": name, "in": "query", "description": described["description"], "schema": schema})
    return {"parameters": parameters}


@router.get("/serving", include_in_schema=False)
def show_served(request: Request, owner: Owner, config: Config = "") -> HTMLResponse:
    """The form, and the answer to what it holds."""
    del owner
    entered = _read_options(request)
    text, chart, refused, status, mistakes = "", "", None, 200, {}
    if config.strip() or entered:
        try:
            found = _serve(config, entered)
            text, chart = render.render_text(found), render.draw_curve(found)
        except (TracekitError, PredictorError) as error:
            refused, status = serialize_error(error), error.status if isinstance(error, WebError) else 400
            mistakes = {name: refused for name in [find_named_field(error, FIELDS)] if name}
    first = [FIELDS[name] for name in SHOWN_FIRST]
    left = sorted((one for one in FIELDS.values() if one not in first), key=lambda field: [*Panel].index(field.panel))
    others = {panel.value: [*fields] for panel, fields in groupby(left, key=lambda field: field.panel)}
    context = {"config": config, "wanted": Entered(entered), "first": first, "others": others, "mistakes": mistakes}
    context |= {
        "served_fields": FIELDS,
        "has_others": bool(entered.keys() - set(SHOWN_FIRST)),
        "text": text,
        "chart": chart,
    }
    query = urlencode({"config": config, **entered}, doseq=True)
    return render_page("serving.html", status, refused=refused, query=query, **context)


@router.get(
    "/api/v1/serving.json",
    tags=["serving"],
    summary="Tell what users of a served model wait for",
    response_class=Response,
    responses=document_refusals(400) | {200: {"content": {"application/json": {}}}},
    openapi_extra=describe_options(),
)
def get_served(request: Request, owner: Owner, config: Config) -> Response:
    """Time to the first token, time per token, tokens a second and a dollar of a served model under a load."""
    del owner
    unknown = [name for name in request.query_params if name not in FIELDS and name != "config"]
    if unknown:
        raise WebError(front_ends.OPTION_UNKNOWN(option=unknown[0], known=[*FIELDS]))
    return Response(render.as_json(_serve(config, _read_options(request))), media_type="application/json")


def _read_options(request: Request) -> dict[str, Any]:
    return collect_values([(name, value.strip()) for name, value in request.query_params.multi_items()], FIELDS)


def _make_request(options: Mapping[str, Any]) -> ServingAsk:
    """Make a request of texts.

    Raises:
        TracekitError: One isn't what its option takes.
    """
    try:
        return ASK.validate_python(options)
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0])
        raise explain_type(FIELDS[option], options.get(option), first["msg"]) from error


def _serve(config: str, options: Mapping[str, Any]) -> list[ServedTarget]:
    asked = _make_request(options)
    if not SIMULATIONS.acquire(timeout=MAX_WAIT_S):
        raise BusyError(front_ends.PLANNER_BUSY())
    try:
        return serving(config.encode(), asked)
    finally:
        SIMULATIONS.release()
