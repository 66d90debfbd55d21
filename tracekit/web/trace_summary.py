"""Summarize what was found in a job's traces."""

import dataclasses
from typing import TYPE_CHECKING, Any

from tracekit.doctor import examine
from tracekit.reporting import kernel_rows
from tracekit.reporting.plain import to_builtins
from tracekit.reporting.sections import coverage, idle, source, warnings
from tracekit.trace import Trace

if TYPE_CHECKING:
    from tracekit.doctor.examine import MeasureRank
    from tracekit.run import MeasuredRun


def summarize_traces(
    trace: Trace,
    run: "MeasuredRun",
    lowest: "MeasuredRun",
    beside: int = 0,
    measure: "MeasureRank | None" = None,
) -> dict[str, Any]:
    """Summarize the traces: the source, the diagnosis and its grade, the modelled share of GPU time.

    Args:
        trace: The trace of all ranks read.
        run: The measured run of all these ranks.
        lowest: The measured run of the lowest rank, which the diagnosis examines.
        beside: Number of ranks whose traces were given, but are read elsewhere.
        measure: Measures another rank for the diagnosis.
    """
    rows = kernel_rows.build_kernel_rows(run, (), kernel_rows.predict_on_source(run))
    return {
        "source": dataclasses.asdict(source.build_source_summary(run)),
        "coverage": dataclasses.asdict(coverage.build_work_coverage(rows)),
        "diagnosis": to_builtins(examine(trace, lowest, beside, measure)),
        "warnings": [one.to_dict() for one in warnings.build_warnings(run, idle.analyze_idle_time(run))],
    }
