"""A trace to its diagnosis."""

from tracekit import secrets
from tracekit.doctor.checks import CHECKS
from tracekit.doctor.model import Case, Diagnosis, grade, most_helpful
from tracekit.doctor.recipe import snippet
from tracekit.replay.run import Run
from tracekit.trace import Trace


def examine(trace: Trace, run: Run) -> Diagnosis:
    """What a trace lacks for a good prediction.

    Args:
        trace: All ranks that were read.
        run: The measured run of one of them.
    """
    case = Case.of(trace, run)
    checks = tuple(found.judged() for check in CHECKS if (found := check(case)) is not None)
    carried = dict.fromkeys(warning for rank in trace.ranks for warning in secrets.warnings(rank))
    return Diagnosis(
        source=trace.source,
        rank=run.trace.rank,
        ranks_read=run.ranks_read,
        world_size=run.trace.world_size,
        grade=grade(checks),
        checks=checks,
        best=most_helpful(checks),
        snippet=snippet(checks, amd=case.is_amd),
        warnings=(*trace.warnings, *carried),
    )
