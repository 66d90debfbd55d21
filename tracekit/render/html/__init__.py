"""Render the report or a comparison as one self-contained HTML file."""

from tracekit.render.html.page import ReportBody, render_page, render_report_body

__all__ = ["ReportBody", "render_page", "render_report_body"]
