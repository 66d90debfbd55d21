"""Jinja environment of all pages: templates, filters and embedded files."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tracekit.escape import to_html
from tracekit.format import (
    format_change,
    format_count,
    format_dollars,
    format_duration,
    format_interval,
    format_likely,
    format_number,
    format_percent,
    format_price,
    format_quantity,
    format_range,
    shorten,
    shorten_kernel_name,
)
from tracekit.render import serving
from tracekit.render.colours import get_family_colour
from tracekit.render.costs import describe_batch
from tracekit.render.energy import format_joules, format_joules_interval
from tracekit.render.step_facts import name_place

MAX_NAME_CHARS = 60
"""Maximum length of a name in a table; a tooltip shows the full name."""


@cache
def get_environment() -> Environment:
    """Return the Jinja environment; its templates escape all values."""
    made = Environment(
        loader=PackageLoader("tracekit.render.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean_text,
    )
    formats: dict[str, Any] = {
        "change": format_change,
        "count": format_count,
        "likely": format_likely,
        "price": format_price,
        "quantity": format_quantity,
        "range": format_range,
        "duration": format_duration,
        "digits": format_number,
        "dollars": format_dollars,
        "joules": format_joules,
        "joules_interval": format_joules_interval,
        "percent": format_percent,
        "colour": _get_style_colour,
        "place": name_place,
        "told": describe_batch,
        "served": serving.describe_batches,
        "serving_headings": serving.list_headings,
        "serving_rows": serving.build_rows,
    }
    made.filters.update(formats, shorten=lambda text, width=MAX_NAME_CHARS: shorten(shorten_kernel_name(text), width))
    made.globals.update(interval=format_interval)
    return made


def _get_style_colour(family: str) -> str:
    """Return a family's colour for a style; idle time is pale in both themes."""
    return "var(--idle)" if family == "idle" else get_family_colour(family)


def _clean_text(value: Any) -> Any:
    return to_html(value) if type(value) is str else value


def read_asset(name: str) -> str:
    """Read a file from the templates folder."""
    return (files("tracekit.render.html") / "templates" / name).read_text(encoding="utf-8")


def hash_script(script: bytes) -> str:
    """Return the content-security-policy source of an inline script: its SHA-256 hash."""
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return f"'sha256-{digest}'"
