"""The decision as a table: the targets compared with the trace."""

from collections.abc import Iterator

import polars as pl

from tracekit.reporting.figure_columns import list_figure_columns, spread_figure
from tracekit.reporting.sections.decision import Decision
from tracekit.schema import TableColumn, TableSchema

FIGURES = {
    "speedup": "Throughput relative to the trace, blank of a program that never ran",
    "dollars": "Dollars for a million tokens or samples, or 1,000 steps",
    "break_even": "Dollars for an hour of one GPU there below which the work is cheaper than where it was traced",
    "run_hours": "Hours for the whole job",
    "run_dollars": "Dollars for the whole job",
    "joules": "Joules for one token, sample or step on all GPUs in use",
}
"""Figures with an interval, and their meanings."""

ANSWER = TableSchema(
    "answer",
    "The targets compared with the trace for equal work, best first.",
    (
        TableColumn("rank", pl.Int64, "One more than the number of targets that are surely better."),
        TableColumn("target", pl.String, "The GPU or cluster."),
        TableColumn("gpus", pl.Int64, "GPUs in use."),
        TableColumn("rented", pl.Int64, "GPUs that dollars count: whole instances of a cloud."),
        TableColumn("price", pl.Float64, "Dollars for an hour of one GPU."),
        *(column for name, meaning in FIGURES.items() for column in list_figure_columns(name, meaning)),
        TableColumn("fits_in_memory", pl.Boolean, "Whether a rank fits into memory; blank where that isn't known."),
        TableColumn("answer", pl.String, "The same in words."),
    ),
)


def list_answers(decision: Decision | None) -> Iterator[dict[str, object]]:
    """Yield the rows of the table."""
    for target in decision.targets if decision else ():
        row: dict[str, object] = {"rank": target.rank, "target": target.label, "gpus": target.gpus}
        row |= {"rented": target.rented, "price": target.price}
        for name in FIGURES:
            row |= spread_figure(name, getattr(target, name))
        yield row | {"fits_in_memory": target.fits, "answer": str(target.sentence)}
