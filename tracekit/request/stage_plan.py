"""How far work has come, by the stage that begins, for the terminal and the web page."""

from tracekit.messages import Message, Template, requests

Plan = tuple[Template, ...]

MEASURING: Plan = (
    requests.READING_TRACE,
    requests.CLASSIFYING_KERNELS,
    requests.LINKING_DEPENDENCIES,
    requests.REPLAYING,
)
"""The stages that measure a run."""

EFFORTS = {
    requests.CHECKING_FILES: 0.2,
    requests.READING_TRACE: 6,
    requests.CLASSIFYING_KERNELS: 5,
    requests.LINKING_DEPENDENCIES: 1.5,
    requests.REPLAYING: 0.5,
    requests.EXAMINING: 4,
    requests.PREDICTING: 11,
    requests.PREDICTING_LAYOUTS: 22,
    requests.BUILDING_REPORT: 12,
    requests.WRITING_FORM: 55,
    requests.STORING_REPORTS: 1,
    requests.REDACTING: 6,
}
"""How long stages take, relative to each other: tenths of a second on two cores, of three traces of 7,000 to 100,000
events with three targets and all forms of the report. Layouts and redaction are estimates. Reading is a larger part of
larger traces, predicting of more targets: the time left that follows is rough."""
SAME_STAGE = {
    requests.READING_FILE: requests.READING_TRACE,
    requests.CAPTURING: requests.READING_TRACE,
    requests.PREDICTING_TARGET: requests.PREDICTING,
}
"""Stages that stand for one of a plan: because they count what they have done, or take its place."""
COUNTS = {requests.READING_FILE: "files", requests.PREDICTING_TARGET: "targets"}


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
