"""Finding: unused memory on the measured GPU, or too little memory on a target."""

from collections.abc import Iterator

from tracekit.prediction.memory import judge_memory_fit
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding

GIB = 2**30
DOES_NOT_FIT_KIND = "does-not-fit"
MAX_MEMORY_FRACTION = 0.5
"""Fraction of the GPU's memory below which the job could be larger."""


def find_memory_limits(context: FindingContext) -> Iterator[Finding]:
    """Find a job that needs at most half of its GPU's memory, and every target into whose memory it doesn't fit."""
    gpu = context.run.gpu
    most = judge_memory_fit(context.run, gpu).max_bytes if gpu else None
    if gpu and most is not None and most < MAX_MEMORY_FRACTION * gpu.memory_bytes:
        yield Finding(
            kind="memory-headroom",
            title=f"The job needs at most {most / GIB:.1f} of {gpu.memory_bytes / GIB:.0f} GiB of memory.",
            advice="A larger batch makes larger kernels (predict --batch 2); activation checkpointing isn't needed.",
            saves_us=None,
        )
    for target in context.targets:
        if target.memory.fits is False:
            yield Finding(
                kind=DOES_NOT_FIT_KIND,
                title=f"The job doesn't fit into the memory of {target.label}: {target.memory.reason}.",
                advice="Shard it over more ranks (FSDP, ZeRO), offload, or take a smaller optimizer state.",
                saves_us=None,
                on=target.label,
            )
