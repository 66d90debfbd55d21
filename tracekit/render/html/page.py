"""One self-contained page: templates, style, scripts and data in a single file."""

import msgspec
from markupsafe import Markup

from predictors.machine import ABOVE_BOOST
from tracekit.render import edits, figures
from tracekit.render.colours import colour
from tracekit.render.findings import grouped
from tracekit.render.html.environment import asset, environment, script_source
from tracekit.render.html.rows import kernel_rows
from tracekit.render.words import (
    gpus_named,
    headline,
    larger_steps,
    measured_steps,
    notes,
    once,
    speed_lines,
    target_named,
)
from tracekit.reporting.model import Report
from tracekit.reporting.sections.bars import families
from tracekit.reporting.tables import COLLECTIVES, KERNEL_TIMES, LAWS, MODULES, PREDICTED, RANKS
from tracekit.schema import Table

CHARTS = ("roofline", "speeds", "steps")
MOST_RANKS = 16
MOST_MODULES = 300


def page(report: Report) -> str:
    """The report as HTML: opens from a file, asks nobody for anything, and stays under 10 MB whatever the trace.

    Args:
        report: With or without predictions.
    """
    from plotly.offline import get_plotlyjs

    kernels, omitted = kernel_rows(report)
    data = {
        "gpus": [target.label for target in report.targets],
        "colours": {kernel.family: colour(kernel.family) for kernel in report.kernels},
        "kernels": kernels,
        "figures": {name: figures.spec(report, name) for name in CHARTS},
    }
    scripts = [get_plotlyjs(), asset("page.js")]
    return (
        environment()
        .get_template("page.html")
        .render(
            report=report,
            MOST_RANKS=MOST_RANKS,
            MOST_MODULES=MOST_MODULES,
            headline=headline(report),
            findings=grouped(report.findings),
            edits=list(edits.rows(report)),
            edit_headings=edits.headings(report),
            notes=notes(report),
            families=families(report.bars),
            larger_steps=list(once(report, larger_steps)),
            speeds=list(speed_lines(report)),
            omitted=omitted,
            drawn_pct=sum(kernel.share for kernel in figures.on_roofline(report)),
            smallest_pct=figures.SMALLEST_SHARE,
            above_boost_pct=100 * (ABOVE_BOOST - 1),
            gpus_named=gpus_named,
            target_named=target_named,
            measured_steps=measured_steps,
            style=Markup(asset("style.css")),
            data=_embedded(data),
            scripts=[Markup(script) for script in scripts],
            script_sources=" ".join(script_source(script.encode()) for script in scripts),
            columns={table.name: _meanings(table) for table in (KERNEL_TIMES, MODULES, COLLECTIVES, RANKS, LAWS)}
            | {"predicted": PREDICTED},
        )
    )


def _meanings(table: Table) -> dict[str, str]:
    return {column.name: column.doc for column in table.columns}


def _embedded(data: object) -> Markup:
    """JSON that can't end the script element it stands in."""
    return Markup(msgspec.json.encode(data).decode().replace("<", "\\u003c"))
