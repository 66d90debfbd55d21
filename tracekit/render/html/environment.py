"""What every page is made with: templates, their filters, and files to put in them."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tracekit.render.colours import colour
from tracekit.render.costs import told
from tracekit.render.words import place_named
from tracekit.units import change, digits, dollars, duration, interval, kernel_title, percent, shorten

LONGEST = 60
"""Of a name beside a figure; pointing at it shows the rest."""


@cache
def environment() -> Environment:
    """Templates that escape whatever is put in them."""
    made = Environment(
        loader=PackageLoader("tracekit.render.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats: dict[str, Any] = {
        "change": change,
        "duration": duration,
        "digits": digits,
        "dollars": dollars,
        "percent": percent,
        "colour": colour,
        "place": place_named,
        "told": told,
    }
    made.filters.update(formats, shorten=lambda text, width=LONGEST: shorten(kernel_title(text), width))
    made.globals.update(interval=interval)
    return made


def asset(name: str) -> str:
    """A file that lies beside the templates."""
    return (files("tracekit.render.html") / "templates" / name).read_text(encoding="utf-8")


def script_source(script: bytes) -> str:
    """How a content security policy names an inline script."""
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return f"'sha256-{digest}'"
