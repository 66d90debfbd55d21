"""Render the report or a comparison as one self-contained HTML file."""

from tracekit.render.html.comparison import render_comparison_body, render_comparison_page
from tracekit.render.html.page import ReportBody, render_page, render_report_body

__all__ = ["ReportBody", "render_comparison_body", "render_comparison_page", "render_page", "render_report_body"]
