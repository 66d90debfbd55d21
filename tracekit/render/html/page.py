"""One self-contained page: templates, style, scripts and data in a single file."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tracekit.render import figures
from tracekit.render.colours import colour
from tracekit.render.html.rows import kernel_rows
from tracekit.render.words import headline, speed_lines
from tracekit.reporting.model import Report
from tracekit.reporting.tables import COLLECTIVES, KERNEL_TIMES, LAWS, MODULES, PREDICTED, RANKS
from tracekit.schema import Table
from tracekit.units import digits, duration, interval, percent, shorten

CHARTS = ("roofline", "speeds", "steps")
MOST_RANKS = 16
MOST_MODULES = 300
LONGEST = 60
"""Of a name beside a figure; pointing at it shows the rest."""


def page(report: Report) -> str:
    """The report as HTML: opens from a file, asks nobody for anything, and stays under 10 MB whatever the trace.

    Args:
        report: With or without predictions.
    """
    from plotly.offline import get_plotlyjs

    kernels, omitted = kernel_rows(report)
    data = {
        "gpus": [target.label for target in report.targets],
        "colours": {family: colour(family) for family in {kernel.family for kernel in report.kernels}},
        "kernels": kernels,
        "figures": {name: figures.spec(report, name) for name in CHARTS},
    }
    scripts = [get_plotlyjs(), _asset("page.js")]
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            headline=headline(report),
            speeds=list(speed_lines(report)),
            omitted=omitted,
            drawn_pct=sum(kernel.share for kernel in figures.on_roofline(report)),
            smallest_pct=figures.SMALLEST_SHARE,
            names={gpu.slug: gpu.name for gpu in report.provenance.gpus},
            style=Markup(_asset("style.css")),
            data=_embedded(data),
            scripts=[Markup(script) for script in scripts],
            script_sources=" ".join(map(_source, scripts)),
            columns={table.name: _meanings(table) for table in (KERNEL_TIMES, MODULES, COLLECTIVES, RANKS, LAWS)}
            | {"predicted": PREDICTED},
        )
    )


def _meanings(table: Table) -> dict[str, str]:
    return {column.name: column.doc for column in table.columns}


def _embedded(data: object) -> Markup:
    """JSON that can't end the script element it stands in."""
    return Markup(msgspec.json.encode(data).decode().replace("<", "\\u003c"))


def _source(script: str) -> str:
    """How a content security policy names an inline script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _asset(name: str) -> str:
    return (files("tracekit.render.html") / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tracekit.render.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats: dict[str, Any] = {"duration": duration, "digits": digits, "percent": percent, "colour": colour}
    environment.filters.update(formats, shorten=lambda text, width=LONGEST: shorten(text, width))
    environment.globals.update(interval=interval, MOST_RANKS=MOST_RANKS, MOST_MODULES=MOST_MODULES)
    return environment
