"""All inference rules, in the order in which they are applied."""

from collections.abc import Sequence

from tracekit.errors import RuleError
from tracekit.graph.inferred import (
    carried_in,
    copy_gaps,
    cuda_graph_gaps,
    dependent_launch,
    device_waits,
    event_waits,
    gpu_stalls,
    launch_ahead,
    launch_queue,
    long_delays,
    occupancy,
    pageable_copies,
    polled_kernels,
    submission,
    sync_targets,
    thread_handovers,
    unrecorded_work,
)
from tracekit.graph.ranks import clocks
from tracekit.ingest import correlations
from tracekit.messages import requests as messages
from tracekit.replay import collective_transfer
from tracekit.rules import Rule, RuleNames
from tracekit.workload import busy_start, contradicted_names, precision, step_kinds, steps, unmarked_steps
from tracekit.workload.work_inference import DIRECTION_RULES, WORK_RULES

INFERENCE_RULES: tuple[Rule, ...] = (
    correlations.RULE,
    steps.RULE,
    *unmarked_steps.RULES,
    step_kinds.RULE,
    busy_start.RULE,
    contradicted_names.RULE,
    *DIRECTION_RULES,
    *WORK_RULES,
    precision.RULE,
    clocks.RULE,
    submission.RULE,
    pageable_copies.RULE,
    sync_targets.RULE,
    unrecorded_work.RULE,
    launch_queue.RULE,
    copy_gaps.RULE,
    cuda_graph_gaps.RULE,
    dependent_launch.RULE,
    event_waits.RULE,
    device_waits.RULE,
    occupancy.RULE,
    carried_in.RULE,
    long_delays.RULE,
    gpu_stalls.RULE,
    polled_kernels.RULE,
    launch_ahead.RULE,
    thread_handovers.RULE,
    collective_transfer.RULE,
)


def select_rules(names: Sequence[str]) -> RuleNames:
    """Return the rules with these names.

    Raises:
        RuleError: There is no such rule.
    """
    known = [rule.name for rule in INFERENCE_RULES]
    for name in names:
        if name not in known:
            raise RuleError(messages.RULE_UNKNOWN(name=name, known=known))
    return frozenset(names)
