"""The report as one HTML file that needs nothing from elsewhere."""

from tracekit.render.html.page import page

__all__ = ["page"]
