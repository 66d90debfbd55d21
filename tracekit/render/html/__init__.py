"""Render the report or a comparison as one self-contained HTML file."""

from tracekit.render.html.comparison import render_comparison_page
from tracekit.render.html.page import render_page

__all__ = ["render_comparison_page", "render_page"]
