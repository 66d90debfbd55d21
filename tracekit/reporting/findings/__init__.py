"""Findings: what limits the step. To add one: a file with a function of a ``FindingContext``, and a line here."""

from collections.abc import Callable, Iterator

from tracekit.reporting.findings import (
    allocator,
    attention,
    bottleneck,
    communication,
    data_loading,
    faster_than_bound,
    fusion,
    graph_breaks,
    largest_part,
    launch_bound,
    low_utilization,
    memory,
    older_attention,
    optimizer,
    pageable_copies,
    precision,
    small_collectives,
    stragglers,
    synchronisation,
    tensor_cores,
    warmup,
)
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding

FindingFunction = Callable[[FindingContext], Iterator[Finding]]

FINDINGS: tuple[FindingFunction, ...] = (
    launch_bound.find_launch_bound,
    synchronisation.find_synchronisation,
    data_loading.find_data_loading,
    allocator.find_allocator_calls,
    communication.find_exposed_communication,
    stragglers.find_straggler,
    small_collectives.find_small_collectives,
    precision.find_full_precision,
    tensor_cores.find_missing_tensor_cores,
    low_utilization.find_low_utilization,
    attention.find_unfused_attention,
    older_attention.find_older_attention,
    fusion.find_unfused_chains,
    optimizer.find_unfused_optimizer,
    pageable_copies.find_pageable_copies,
    bottleneck.find_bottlenecks,
    memory.find_memory_limits,
    graph_breaks.find_graph_breaks,
    warmup.find_warmup_step,
    faster_than_bound.find_faster_than_bound,
)


def collect_findings(context: FindingContext) -> tuple[Finding, ...]:
    """Collect the findings, largest saving first; those without a saving last. The step's largest part has one."""
    found = [finding for find in FINDINGS for finding in find(context)]
    found += largest_part.find_largest_part(context, found)
    return tuple(sorted(found, key=lambda finding: -(finding.saves_us or 0.0)))
