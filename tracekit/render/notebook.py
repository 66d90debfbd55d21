"""Render the report in a notebook: an HTML card and charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import escape

from tracekit.errors import TracekitError
from tracekit.format import format_duration, format_interval, format_percent, shorten
from tracekit.messages.requests import EXTRA_MISSING
from tracekit.render.charts import build_chart
from tracekit.render.charts.plotly import build_plotly_spec
from tracekit.render.headline import build_headline
from tracekit.render.notes import choose_notes
from tracekit.render.step_facts import format_speedup, is_per_sample
from tracekit.reporting.model import Report

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MAX_ROWS = 5
MAX_TITLE_CHARS = 100
MAX_WARNINGS = 3
MAX_DOUBT_CHARS = 300


def make_figure(report: Report, name: str) -> Figure:
    """Return one of the report's charts as a plotly figure.

    Raises:
        TracekitError: There is no chart of that name, or plotly isn't installed.
    """
    try:
        from plotly.graph_objects import Figure
    except ImportError as error:
        raise TracekitError(EXTRA_MISSING(distribution="plotly", reason=str(error), extra="notebook")) from error
    spec = build_plotly_spec(build_chart(report, name))
    return Figure(data=spec["data"], layout={"template": "plotly_white", **spec["layout"]})


def render_report_card(report: Report) -> str:
    """Render the headline, the step on each GPU and the largest findings as HTML without script, below 20 kB."""
    said = build_headline(report)
    source = report.source
    each = " the throughput" if is_per_sample(report) else ""
    here = (source.gpu or source.label, format_duration(source.step_time_us), "", source.label)
    rows = [here] if report.has_baseline else []
    for target in report.targets[: MAX_ROWS - 1]:
        span = format_interval(target.low_us, target.high_us)
        faster = format_speedup(target.speedup_per_sample, f"×{each}")
        told = [faster] * report.has_baseline + ["lacks memory"] * (target.memory.fits is False)
        rows.append((target.label, format_duration(target.step.step_time_us), span, ", ".join(told)))
    findings = [_render_finding(f.title, f.saves_us, source.step_time_us) for f in report.findings[:MAX_ROWS]]
    left_out = len(report.targets) - (MAX_ROWS - 1)
    more = f"<p>and {left_out} more: <code>report.to_html()</code></p>" if left_out > 0 else ""
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<div><p><b>{escape(said.before)} {escape(said.figure)}{escape(said.after)}</b><br>{escape(said.detail)}</p>"
        "<table><thead><tr><th>GPU</th><th>step</th><th>90 % interval</th><th></th></tr></thead>"
        f"<tbody>{body}</tbody></table>{more}<ul>{''.join(findings)}</ul>{_render_doubts(report)}</div>"
    )


def _render_doubts(report: Report) -> str:
    """Render what to know before relying on the figures: the first warnings, and the notes that matter most."""
    doubts = [*map(str, report.warnings[:MAX_WARNINGS]), *choose_notes(report).texts]
    rows = "".join(f"<li>{escape(shorten(doubt, MAX_DOUBT_CHARS))}</li>" for doubt in doubts)
    return f"<p>Before you rely on this:</p><ul>{rows}</ul>" if rows else ""


def _render_finding(title: str, saves_us: float | None, step_time_us: float) -> str:
    saves = ""
    if saves_us:
        saves = f" <b>−{format_duration(saves_us)}</b> ({format_percent(100 * saves_us / step_time_us)} of the step)"
    return f"<li>{escape(shorten(title, MAX_TITLE_CHARS))}{saves}</li>"
