"""All inference rules, in the order in which they are applied."""

from collections.abc import Sequence

from tracekit.errors import RuleError
from tracekit.graph.inferred import awaited_streams, blocking_waits, gpu_room, host_pauses, stream_gaps, submissions
from tracekit.graph.ranks import match
from tracekit.ingest import correlations
from tracekit.messages import requests as messages
from tracekit.replay import collective_transfer
from tracekit.rules import Rule, RuleNames
from tracekit.workload import kernel_table, step_kinds, steps, unmarked_steps
from tracekit.workload.work_inference import DIRECTION_RULES, WORK_RULES

INFERENCE_RULES: tuple[Rule, ...] = (
    correlations.RULE,
    steps.STEPS_RULE,
    *unmarked_steps.RULES,
    step_kinds.STEP_KINDS_RULE,
    step_kinds.BUSY_START_RULE,
    kernel_table.CONTRADICTED_NAMES_RULE,
    *DIRECTION_RULES,
    *WORK_RULES,
    kernel_table.PRECISION_RULE,
    match.RANK_CLOCKS_RULE,
    submissions.SUBMISSION_RULE,
    submissions.PAGEABLE_COPIES_RULE,
    blocking_waits.SYNC_TARGETS_RULE,
    blocking_waits.UNRECORDED_WORK_RULE,
    submissions.LAUNCH_QUEUE_RULE,
    stream_gaps.COPY_GAPS_RULE,
    stream_gaps.CUDA_GRAPH_GAPS_RULE,
    stream_gaps.DEPENDENT_LAUNCH_RULE,
    awaited_streams.EVENT_WAITS_RULE,
    awaited_streams.DEVICE_WAITS_RULE,
    gpu_room.OCCUPANCY_RULE,
    awaited_streams.CARRIED_IN_RULE,
    awaited_streams.LONG_DELAYS_RULE,
    gpu_room.GPU_STALLS_RULE,
    host_pauses.POLLED_KERNELS_RULE,
    host_pauses.LAUNCH_AHEAD_RULE,
    host_pauses.THREAD_HANDOVERS_RULE,
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
