"""Diagnose a trace."""

from tracekit import secret_scan
from tracekit.doctor.checks import CAPTURE_CHECKS, CHECKS
from tracekit.doctor.model import CheckContext, Diagnosis, choose_most_helpful, grade
from tracekit.doctor.recipe import build_snippet
from tracekit.doctor.recorders import build_commands, identify_recorder, translate_check
from tracekit.messages.report_warnings import TIMES_SYNTHETIC
from tracekit.run import MeasuredRun
from tracekit.trace import Trace


def examine(trace: Trace, run: MeasuredRun, beside: int = 0) -> Diagnosis:
    """Diagnose what a trace lacks for a good prediction.

    Args:
        trace: All ranks that were read.
        run: The measured run of one of them.
        beside: Number of ranks whose traces were given, but are read elsewhere.
    """
    case = CheckContext.from_trace(trace, run, beside)
    wanted = CAPTURE_CHECKS if run.is_captured else CHECKS
    checks = tuple(found.drop_cost_if_ok() for check in wanted if (found := check(case)) is not None)
    recorder = identify_recorder(run.trace)
    if recorder is not None:
        checks = tuple(translate_check(check, recorder) for check in checks)
    carried = dict.fromkeys(one for rank in trace.ranks for one in secret_scan.build_secret_warnings(rank))
    return Diagnosis(
        source=trace.source,
        rank=run.trace.rank,
        ranks_read=run.provenance.ranks_read,
        world_size=run.trace.world_size,
        grade=grade(checks),
        checks=checks,
        best=choose_most_helpful(checks),
        snippet=build_commands(checks, recorder) if recorder else build_snippet(checks, amd=case.is_amd),
        warnings=(*([TIMES_SYNTHETIC()] if run.trace.is_synthetic else []), *trace.warnings, *carried),
    )
