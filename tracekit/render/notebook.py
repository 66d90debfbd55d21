"""The report in a notebook: a card that shows itself, and charts."""

from markupsafe import escape
from plotly.graph_objects import Figure

from tracekit.render import figures
from tracekit.render.words import counts_samples, headline
from tracekit.reporting.model import Report
from tracekit.units import digits, duration, interval, percent, shorten

ROWS = 5
LONGEST = 100


def figure(report: Report, name: str) -> Figure:
    """One of the report's charts.

    Raises:
        TracekitError: There is no chart of that name.
    """
    spec = figures.spec(report, name)
    return Figure(data=spec["data"], layout={"template": "plotly_white", **spec["layout"]})


def card(report: Report) -> str:
    """The answer, the step on each GPU, and the findings that save most; without script, below 20 kB."""
    said = headline(report)
    source = report.source
    each = " per sample" if counts_samples(report) else ""
    rows = [(source.gpu or "measured", duration(source.step_time_us), "", "measured")]
    for target in report.targets[: ROWS - 1]:
        span = interval(target.low_us, target.high_us)
        faster = f"{digits(target.speedup_per_sample)}×{each}"
        lacks = ", lacks memory" if target.memory.fits is False else ""
        rows.append((target.label, duration(target.step.step_time_us), span, faster + lacks))
    findings = [_finding(f.title, f.saves_us, source.step_time_us) for f in report.findings[:ROWS]]
    left_out = len(report.targets) - (ROWS - 1)
    more = f"<p>and {left_out} more: <code>report.to_html()</code></p>" if left_out > 0 else ""
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<div><p><b>{escape(said.before)} {escape(said.figure)}{escape(said.after)}</b><br>{escape(said.detail)}</p>"
        "<table><thead><tr><th>GPU</th><th>step</th><th>90 % interval</th><th></th></tr></thead>"
        f"<tbody>{body}</tbody></table>{more}<ul>{''.join(findings)}</ul></div>"
    )


def _finding(title: str, saves_us: float | None, step_time_us: float) -> str:
    saves = f" <b>−{duration(saves_us)}</b> ({percent(100 * saves_us / step_time_us)})" if saves_us else ""
    return f"<li>{escape(shorten(title, LONGEST))}{saves}</li>"
