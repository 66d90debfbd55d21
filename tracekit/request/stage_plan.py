"""How far work has come, by the stage that begins, for the terminal and the web page."""

from tracekit.messages import Message, Template, stages

Plan = tuple[Template, ...]

MEASURING: Plan = (
    stages.READING_TRACE,
    stages.CLASSIFYING_KERNELS,
    stages.LINKING_DEPENDENCIES,
    stages.REPLAYING,
)
"""The stages that measure a run."""

EFFORTS = {
    stages.CHECKING_FILES: 0.2,
    stages.READING_TRACE: 6,
    stages.CLASSIFYING_KERNELS: 5,
    stages.LINKING_DEPENDENCIES: 1.5,
    stages.REPLAYING: 0.5,
    stages.EXAMINING: 4,
    stages.PREDICTING: 11,
    stages.PREDICTING_LAYOUTS: 22,
    stages.BUILDING_REPORT: 12,
    stages.WRITING_FORM: 55,
    stages.STORING_REPORTS: 1,
    stages.REDACTING: 6,
}
"""How long stages take, relative to each other: tenths of a second on two cores, of three traces of 7,000 to 100,000
events with three targets and all forms of the report. Layouts and redaction are estimates. Reading is a larger part of
larger traces, predicting of more targets: the time left that follows is rough."""
SAME_STAGE = {
    stages.READING_FILE: stages.READING_TRACE,
    stages.CAPTURING: stages.READING_TRACE,
    stages.PREDICTING_TARGET: stages.PREDICTING,
}
"""Stages that stand for one of a plan: because they count what they have done, or take its place."""
COUNTS = {stages.READING_FILE: "files", stages.PREDICTING_TARGET: "targets"}


def compute_share_done(stage: Message, plan: Plan, part: float = 0.0) -> float | None:
    """Return the fraction of the work that is done as a stage begins; None for a stage that isn't planned.

    Args:
        stage: The stage; one that counts files or targets begins anew for each.
        plan: All stages, in order.
        part: Fraction of the stage that is done, of one that begins anew without a count.
    """
    planned = SAME_STAGE.get(stage.template, stage.template)
    if planned not in plan:
        return None
    efforts = [EFFORTS[one] for one in plan]
    place = plan.index(planned)
    if stage.template in COUNTS:
        count, number = stage.values[COUNTS[stage.template]], stage.values["number"]
        assert isinstance(count, int)
        assert isinstance(number, int)
        part = (number - 1) / count
    return (sum(efforts[:place]) + efforts[place] * part) / sum(efforts)
