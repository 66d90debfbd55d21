"""Answers as the library returns them: with the tables, the page, the card and the charts that a notebook shows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from tracekit.prediction import Predictions
from tracekit.reporting import Report, build_prediction_report

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
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


@dataclass(frozen=True, slots=True, repr=False)
class NotebookPredictions(Predictions):
    """Predictions that show themselves as a table."""

    @classmethod
    def from_predictions(cls, predictions: Predictions) -> NotebookPredictions:
        """Return the same predictions with the methods of this class."""
        return cls(**{one.name: getattr(predictions, one.name) for one in fields(predictions)})

    def to_polars(self) -> pl.DataFrame:
        """Return a row for the measured step and for each predicted one, as ``tracekit predict --format csv`` does."""
        from tracekit.reporting.tables import build_answer_frame

        return build_answer_frame(self._build_report())

    def to_pandas(self) -> pd.DataFrame:
        """Return what :meth:`to_polars` returns.

        Raises:
            TracekitError: pandas isn't installed.
        """
        from tracekit.interop.pandas import to_pandas_frame

        return to_pandas_frame(self.to_polars())

    def __repr__(self) -> str:
        from rich.console import Group

        from tracekit.render.screen import as_text
        from tracekit.render.terminal import render_answer
        from tracekit.render.terminal_tables import render_targets

        report = self._build_report()
        return as_text(Group(*render_answer(report), render_targets(report))).rstrip()

    def _repr_html_(self) -> str:
        from tracekit.render.notebook import render_report_card

        return render_report_card(self._build_report())

    def _build_report(self) -> Report:
        return build_prediction_report(self, with_timelines=False)
