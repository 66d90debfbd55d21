"""The report's charts: each is described once, and drawn as SVG for pages or as a plotly figure for notebooks."""

from collections.abc import Callable

from tracekit.errors import TracekitError
from tracekit.messages import front_ends
from tracekit.render.charts.model import Chart
from tracekit.render.charts.roofline import build_roofline_chart
from tracekit.render.charts.steps import build_copy_chart, build_queue_chart, build_step_chart, build_time_chart
from tracekit.render.charts.times import build_answer_chart, build_speed_chart
from tracekit.reporting.model import Report

CHART_BUILDERS: dict[str, Callable[[Report], Chart]] = {
    "answer": build_answer_chart,
    "time": build_time_chart,
    "roofline": build_roofline_chart,
    "speeds": build_speed_chart,
    "steps": build_step_chart,
    "queues": build_queue_chart,
    "copies": build_copy_chart,
}
"""Function that builds each chart, by the chart's name."""


def build_chart(report: Report, name: str) -> Chart:
    """Build one chart of the report.

    Raises:
        TracekitError: There is no chart of that name.
    """
    if name not in CHART_BUILDERS:
        raise TracekitError(front_ends.FIGURE_UNKNOWN(name=name, known=[*CHART_BUILDERS]))
    return CHART_BUILDERS[name](report)
