"""A run and its predictions to a report."""

from collections.abc import Sequence

from tracekit.prediction import Prediction, Predictions, Refused
from tracekit.prediction.batch import Batch
from tracekit.replay.run import Run
from tracekit.replay.whatif import WhatIf
from tracekit.reporting.findings import FINDINGS
from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding
from tracekit.reporting.model import Report
from tracekit.reporting.sections import (
    accuracy,
    bars,
    breakdown,
    communication,
    coverage,
    critical,
    idle,
    kernels,
    modules,
    over_bound,
    phases,
    provenance,
    ranks,
    roofs,
    sensitivity,
    source,
    steps,
    streams,
    table,
    warnings,
)
from tracekit.reporting.sections import what_if as edits


def build(
    run: Run,
    targets: Sequence[Prediction] = (),
    *,
    command: str | None = None,
    what_if: WhatIf | None = None,
    after_edits: Sequence[Sequence[float | None]] = (),
    price: float | None = None,
    batch: Batch | None = None,
    refused: Sequence[Refused] = (),
) -> Report:
    """The report of a run.

    Args:
        run: The measured run.
        targets: Its predictions.
        command: The command line that asked for it.
        what_if: Edits of the run, which the predictions have in them.
        after_edits: For each of them the steps on the targets with it and those before.
        price: Dollars for an hour of the trace's GPU; None if it isn't known.
        batch: What the job works through in a measured step; None for what the trace tells.
        refused: Targets on which the step can't be predicted.
    """
    rows = table.in_steps(run, targets)
    chosen = run.chosen.height
    idle_time = idle.of(run)
    return Report(
        source=source.build(run, price, batch),
        replay=run.replay,
        coverage=coverage.build(rows),
        breakdown=breakdown.build(rows, chosen),
        phases=phases.build(rows, chosen),
        modules=modules.build(rows, chosen),
        idle=idle.build(run, idle_time),
        streams=streams.build(run),
        ranks=ranks.build(run),
        bars=bars.build(run, targets),
        kernels=kernels.build(rows, chosen, len(targets)),
        over_bound=over_bound.build(rows, run.gpu),
        roofs=roofs.build(run, rows, targets),
        communication=communication.build(rows, chosen),
        steps=steps.build(run),
        critical=critical.build(run),
        speeds=sensitivity.build(run),
        accuracy=accuracy.build(rows, targets),
        what_if=edits.build(what_if, after_edits),
        provenance=provenance.build(run, targets, command),
        findings=_findings(Case(run, rows, idle_time, tuple(targets))),
        warnings=(*map(str, refused), *warnings.build(run, idle_time)),
        targets=tuple(targets),
        refused=tuple(refused),
    )


def of_predictions(predicted: Predictions, command: str | None = None) -> Report:
    """The report of predictions, and of the run that they are of.

    Args:
        predicted: The predictions.
        command: The command line that asked for it.
    """
    return build(
        predicted.run,
        predicted.targets,
        command=command,
        what_if=predicted.what_if,
        after_edits=predicted.after_edits,
        price=predicted.price,
        batch=predicted.batch,
        refused=predicted.refused,
    )


def _findings(case: Case) -> tuple[Finding, ...]:
    """Those that save most first; those without a saving last."""
    found = [finding for find in FINDINGS for finding in find(case)]
    return tuple(sorted(found, key=lambda finding: -(finding.saves_us or 0.0)))
