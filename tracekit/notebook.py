"""The report as the library returns it: with the page, the card and the charts that a notebook shows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tracekit.reporting import Report

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, slots=True, repr=False)
class NotebookReport(Report):
    """A report that shows itself in a notebook."""

    @classmethod
    def from_report(cls, report: Report) -> NotebookReport:
        """Return the same report with the methods of this class."""
        return cls(**{one.name: getattr(report, one.name) for one in fields(report)})

    def figure(self, name: str) -> Figure:
        """Return a chart.

        Args:
            name: ``"answer"``, ``"time"``, ``"roofline"``, ``"speeds"``, ``"steps"``, ``"queues"`` or ``"copies"``.

        Raises:
            TracekitError: There is no chart of that name, or plotly isn't installed.
        """
        from tracekit.render.notebook import make_figure

        return make_figure(self, name)

    def to_html(self, *, with_details: bool = False) -> str:
        """Return the report as one self-contained page, as ``tracekit report -o report.html`` writes it.

        Args:
            with_details: Whether to keep paths, prices and dollars.
        """
        from tracekit.render.html.page import render_page
        from tracekit.render.private_details import remove_details

        return render_page(self if with_details else remove_details(self))

    def _repr_html_(self) -> str:
        from tracekit.render.notebook import render_report_card

        return render_report_card(self)
