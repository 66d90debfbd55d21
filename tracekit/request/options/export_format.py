"""Formats of exported files."""

from enum import StrEnum


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
