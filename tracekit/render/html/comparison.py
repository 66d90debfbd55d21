"""Render a comparison as a self-contained HTML page."""

from markupsafe import Markup

from tracekit.render.compare import (
    describe_step_change,
    describe_work_change,
    find_comparison_warnings,
    format_step_share,
    list_run_differences,
    name_unmatched_kernels,
    select_large_changes,
)
from tracekit.render.html.environment import get_environment, read_asset
from tracekit.reporting.comparison import Comparison


def render_comparison_page(comparison: Comparison, top: int) -> str:
    """Render two runs side by side as HTML that makes no network requests.

    Args:
        comparison: The two runs.
        top: Number of kernels to show in each of the tables of matched, new and vanished kernels.
    """
    return (
        get_environment()
        .get_template("compare.html")
        .render(
            comparison=comparison,
            difference=describe_step_change(comparison),
            done=describe_work_change(comparison),
            differences=list(list_run_differences(comparison)),
            doubts=list(map(str, find_comparison_warnings(comparison))),
            part=format_step_share,
            only=name_unmatched_kernels,
            changes=select_large_changes(comparison),
            longest=max(side.high_us or side.step_time_us for side in (comparison.a, comparison.b)),
            top=top,
            style=Markup(read_asset("style.css")),
        )
    )
