"""Requests of a report, an export and a prediction."""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING

from tracekit.request.options.layout import LayoutOptions, ScheduleOptions
from tracekit.request.options.run import EditOptions, RunOptions
from tracekit.request.options.target import DecisionOptions, TargetOptions

if TYPE_CHECKING:
    from tracekit.parallelism.layout import LayoutRequest
    from tracekit.prediction.question import Question


@dataclass(frozen=True, kw_only=True)
class ReportRequest(RunOptions, EditOptions):
    """A report of the measured run."""


@dataclass(frozen=True, kw_only=True)
class ExportRequest(RunOptions, EditOptions, ScheduleOptions, LayoutOptions, TargetOptions):
    """The measured run, with predictions beside it if there are targets."""

    @property
    def question(self) -> "Question":
        """What is to be decided: how fast it is, unless a request asks for something else."""
        from tracekit.prediction.question import DEFAULT_QUESTION

        return DEFAULT_QUESTION

    @property
    def layout(self) -> "LayoutRequest":
        """The requested layout."""
        from tracekit.parallelism.layout import LayoutRequest

        chunks, zero_bubble = self.schedule
        own = {field.name: getattr(self, field.name) for field in fields(LayoutOptions)}
        return LayoutRequest(
            **(own | {"batch": self.batch_factor}),
            **self.sharding,  # type: ignore[arg-type]
            **self.exchange,  # type: ignore[arg-type]
            sequence_parallel=self.sequence_parallel or None,
            cp_ring=self.cp_ring or None,
            balance=self.balance or None,
            micro_batches=self.micro_batches,
            chunks=chunks,
            zero_bubble=zero_bubble,
        )


@dataclass(frozen=True, kw_only=True)
class FleetRequest(DecisionOptions, ExportRequest):
    """Predictions of a job rank by rank, on some targets or none."""


@dataclass(frozen=True, kw_only=True)
class PredictRequest(DecisionOptions, ExportRequest):
    """Predictions on some targets."""

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        self.require_target()
        super().check()


class ExportFormat(StrEnum):
    """Format of an exported file; that of Chakra is a folder with a file for each rank."""

    PERFETTO = "perfetto"
    KINETO = "kineto"
    PARQUET = "parquet"
    CSV = "csv"
    CHAKRA = "chakra"


EXPORT_SUFFIXES: dict[ExportFormat, tuple[str, ...]] = {
    ExportFormat.PERFETTO: (".json", ".gz"),
    ExportFormat.KINETO: (".json", ".gz"),
    ExportFormat.PARQUET: (".parquet",),
    ExportFormat.CSV: (".csv",),
    ExportFormat.CHAKRA: (),
}
