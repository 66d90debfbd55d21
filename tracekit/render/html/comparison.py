"""Render a comparison as a self-contained HTML page, or as a part of one."""

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
from tracekit.render.html.page import ReportBody, get_environment, read_asset, render_document
from tracekit.reporting.comparison import Comparison


def render_comparison_page(comparison: Comparison, top: int) -> str:
    """Render two runs side by side as HTML that makes no network requests. Arguments as for the body."""
    body = render_comparison_body(comparison, top)
    return render_document(f"{comparison.a.label} and {comparison.b.label}", body)


def render_comparison_body(comparison: Comparison, top: int) -> ReportBody:
    """Render two runs side by side for a document that holds more than that.

    Each of the tables of matched, new and vanished kernels shows ``top`` of them.
    """
    content = (
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
        )
    )
    return ReportBody(Markup(content), Markup(read_asset("style.css")), Markup())
