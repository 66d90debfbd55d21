"""Findings: what limits the step. To add one: a function of a ``FindingContext`` by subject, and a line here."""

from collections.abc import Callable, Iterator

from tracekit.reporting.findings import bottleneck, communication, host, kernels, memory
from tracekit.reporting.findings.context import Finding, FindingContext

FindingFunction = Callable[[FindingContext], Iterator[Finding]]

FINDINGS: tuple[FindingFunction, ...] = (
    host.find_launch_bound,
    host.find_synchronisation,
    host.find_data_loading,
    host.find_allocator_calls,
    communication.find_exposed_communication,
    communication.find_straggler,
    communication.find_small_collectives,
    kernels.find_full_precision,
    kernels.find_missing_tensor_cores,
    kernels.find_low_utilization,
    kernels.find_unfused_attention,
    kernels.find_older_attention,
    memory.find_unfused_chains,
    memory.find_unfused_optimizer,
    memory.find_pageable_copies,
    bottleneck.find_bottlenecks,
    memory.find_memory_limits,
    host.find_graph_breaks,
    host.find_warmup_step,
    kernels.find_faster_than_bound,
)


def collect_findings(context: FindingContext) -> tuple[Finding, ...]:
    """Collect the findings, largest saving first; those without a saving last. The step's largest part has one."""
    found = [finding for find in FINDINGS for finding in find(context)]
    found += bottleneck.find_largest_part(context, found)
    return tuple(sorted(found, key=lambda finding: -(finding.saves_us or 0.0)))
