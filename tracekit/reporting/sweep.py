"""The report of a sweep over layouts as plain data: numbers, strings and messages, no run and no graph."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import polars as pl

from tracekit.messages import Message
from tracekit.parallelism.layout import Layout
from tracekit.prediction.sweep import Sweep, SweepEntry, tabulate_entries
from tracekit.reporting.findings.bottleneck import StepLimiter, choose_limiter_on_any_host
from tracekit.reporting.plain import encode_plain, read_report
from tracekit.reporting.sections import warnings
from tracekit.reporting.sections.limits import analyze_idle_time
from tracekit.reporting.sections.step import compute_target_shares


@dataclass(frozen=True, slots=True)
class SweepReport:
    """Layouts by throughput, with what limits them and the warnings about the measured run.

    Attributes:
        trace: Where the trace was read from.
        gpu: Canonical name of its GPU; ``None`` if it isn't known.
        step_time_us: The measured step.
        layout: Layout of the trace.
        unit: What is counted: samples, tokens, or the replicas' steps.
        entries: The layouts.
        knees: By cluster, the most ranks up to which each GPU keeps its throughput; 0 where none fits.
        limits: By cluster, the bottleneck of its layout with the highest throughput, where there is a single one.
        refused: Layouts that can't be predicted, and why.
        straggler_note: What is assumed of the slowest rank of the largest layout; ``None`` without.
        assumptions: What is assumed of inserted collectives, and of nodes larger than any known one.
        warnings: Warnings about the measured run, as in every report.
        has_baseline: Whether the job ran, so that layouts are compared with it.
    """

    trace: str
    gpu: str | None
    step_time_us: float
    layout: Layout
    unit: str
    entries: tuple[SweepEntry, ...]
    knees: Mapping[str, int]
    limits: Mapping[str, StepLimiter]
    refused: tuple[Message, ...]
    straggler_note: Message | None
    assumptions: tuple[Message, ...]
    warnings: tuple[Message, ...]
    has_baseline: bool = True

    @property
    def table(self) -> pl.DataFrame:
        """One row per layout, times in microseconds."""
        return tabulate_entries(self.entries)

    def to_json(self) -> bytes:
        """Return the whole report as JSON, for :meth:`from_json`."""
        return encode_plain(self)

    @classmethod
    def from_json(cls, content: bytes | str) -> Self:
        """Read a report that :meth:`to_json` wrote with the same version of tracekit.

        Raises:
            TraceError: The content is something else.
        """
        return read_report(content, cls)


def build_sweep_report(sweep: Sweep) -> SweepReport:
    """Build the report of a sweep."""
    run = sweep.run
    limits = {label: choose_limiter_on_any_host(compute_target_shares(one)) for label, one in sweep.best.items()}
    return SweepReport(
        trace=run.trace.source,
        gpu=run.gpu.slug if run.gpu else None,
        step_time_us=run.measured_step.step_time_us,
        layout=sweep.layout,
        unit=sweep.unit,
        has_baseline=not run.is_captured,
        entries=tuple(replace(entry, prediction=entry.prediction.to_plain()) for entry in sweep.entries),
        knees=sweep.knees,
        limits={label: one for label, one in limits.items() if one is not None},
        refused=sweep.refused,
        straggler_note=sweep.straggler_note,
        assumptions=sweep.assumptions,
        warnings=(*sweep.price_doubts, *warnings.build_warnings(run, analyze_idle_time(run))),
    )
