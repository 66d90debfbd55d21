"""Error responses: JSON for programs, a page for people."""

import logging
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import Scope

from predictors import PredictorError
from tracekit import format
from tracekit.errors import TracekitError
from tracekit.request import RequestField
from tracekit.web.ask import build_search_text, describe_error, name_box, name_field, render_message
from tracekit.web.database import describe_database_error
from tracekit.web.errors import BusyError, WebError, serialize_error

log = logging.getLogger("tracekit.web")

MINUTE_S = 60

STATIC = Path(__file__).parent / "static"


class Refusal(BaseModel):
    """Why a request was refused."""

    message: str
    hint: str
    code: str = Field(default="", description="Stable name of the message; see the page of messages.")


class ErrorBody(BaseModel):
    """What every refused request is answered with."""

    error: Refusal


def format_input(number: float | str | None) -> str:
    """Format a number as a user would enter it."""
    return f"{number:.15g}" if isinstance(number, float) else str(number or "")


def format_values(values: Sequence[str] | Mapping[str, float], field: RequestField) -> str:
    """Format several values as a user would enter them into one field."""
    separator = field.option.separator if field.option.separator.isspace() else f"{field.option.separator} "
    texts = [f"{name}={number:.15g}" for name, number in values.items()] if isinstance(values, Mapping) else values
    return separator.join(texts)


def describe_field(field: RequestField) -> str:
    """Return the help of an option for the page."""
    return field.option.render_help(name_field)


def format_remaining(seconds: float) -> str:
    """Format an estimated time in whole units.

    Examples:
        >>> format_remaining(7.2), format_remaining(130)
        ('8 s', '3 min')
    """
    return f"{ceil(seconds)} s" if seconds < MINUTE_S else f"{ceil(seconds / MINUTE_S)} min"


def mark_time(seconds: float) -> Markup:
    """Return a time since the epoch as an element, in UTC; browsers with scripts show it as local time."""
    then = datetime.fromtimestamp(seconds, UTC)
    return Markup(f'<time datetime="{then:%Y-%m-%dT%H:%M:%SZ}">{then:%Y-%m-%d %H:%M} UTC</time>')


def mark_code(text: str) -> Markup:
    """Return a text in which what stands between backticks is code.

    Examples:
        >>> mark_code("Where <a> is `b`.")
        Markup('Where &lt;a&gt; is <code>b</code>.')
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _create_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tracekit.web"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    used = (
        describe_error,
        render_message,
        format_input,
        format_values,
        describe_field,
        name_box,
        build_search_text,
        mark_time,
        format_remaining,
        mark_code,
        format.format_bytes,
        format.format_change,
        format.format_interval,
        format.format_number,
        format.format_duration,
        format.format_percent,
    )
    environment.filters |= {function.__name__: function for function in used}
    return environment


ENVIRONMENT = _create_environment()


def render_page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page from its template."""
    return HTMLResponse(ENVIRONMENT.get_template(name).render(**values), status)


def create_refusal(scope: Scope, error: WebError) -> Response:
    """Create the response to a refused request."""
    return _respond_to_error(scope, error.status, error)


async def on_tracekit_error(request: Request, error: Exception) -> Response:
    """Handle tracekit's own errors."""
    status = error.status if isinstance(error, WebError) else 400
    if isinstance(error, BusyError) and error.__cause__ is not None:
        log.warning("the database can't be used now: %s", describe_database_error(error.__cause__))
    assert isinstance(error, (TracekitError, PredictorError))
    return _respond_to_error(request.scope, status, error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Handle the framework's errors."""
    assert isinstance(error, HTTPException)
    answer = _create_response(request.scope, error.status_code, f"{error.detail}.", "")
    answer.headers.update(error.headers or {})
    return answer


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """Handle requests that fail validation."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["loc"][0] in ("path", "query") and not request.url.path.startswith("/api/"):
        return _create_response(request.scope, 404, "There is no such page.", "Part of its address may be missing.")
    where = ".".join(str(part) for part in first["loc"])
    return _create_response(
        request.scope, 422, f"{where}: {first['msg']}.", "The API's page describes what is expected."
    )


def _respond_to_error(scope: Scope, status: int, error: TracekitError | PredictorError) -> Response:
    shown = serialize_error(error)
    said = shown if scope["path"].startswith("/api/") else describe_error(shown)
    answer = _create_response(scope, status, said["message"], said["hint"], shown["code"])
    answer.headers.update(error.headers if isinstance(error, WebError) else {})
    return answer


def _create_response(scope: Scope, status: int, message: str, hint: str, code: str = "") -> Response:
    if scope["path"].startswith("/api/"):
        return JSONResponse(ErrorBody(error=Refusal(message=message, hint=hint, code=code)).model_dump(), status)
    if status == 401:
        return RedirectResponse("/login", 303)
    return render_page("error.html", status, message=message, hint=hint)
