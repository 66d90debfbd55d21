"""What holds the step back. To add a finding: one file with ``find(case)``, one line here."""

from collections.abc import Callable, Iterator

from tracekit.reporting.findings import (
    allocator,
    attention,
    communication,
    data_loading,
    fusion,
    graph_breaks,
    host,
    low_utilization,
    memory,
    older_attention,
    optimizer,
    pageable,
    precision,
    small_collectives,
    stragglers,
    synchronisation,
    target,
    tensor_cores,
    warmup,
    work,
)
from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding

Find = Callable[[Case], Iterator[Finding]]

FINDINGS: tuple[Find, ...] = (
    host.find,
    synchronisation.find,
    data_loading.find,
    allocator.find,
    communication.find,
    stragglers.find,
    small_collectives.find,
    precision.find,
    tensor_cores.find,
    low_utilization.find,
    attention.find,
    older_attention.find,
    fusion.find,
    optimizer.find,
    pageable.find,
    target.find,
    memory.find,
    graph_breaks.find,
    warmup.find,
    work.find,
)
