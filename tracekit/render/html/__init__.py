"""The report, or a comparison, as one HTML file that needs nothing from elsewhere."""

from tracekit.render.html.comparison import comparison_page
from tracekit.render.html.page import page

__all__ = ["comparison_page", "page"]
