"""Memory that is left over here, or lacking on a target."""

from collections.abc import Iterator

from tracekit.prediction.memory import GIB, judge
from tracekit.reporting.findings.case import Case
from tracekit.reporting.findings.model import Finding

LACKING = "does-not-fit"
LITTLE = 0.5
"""Part of the memory below which a job could be larger."""


def find(case: Case) -> Iterator[Finding]:
    """Fires if the job needs at most half of its GPU's memory, and for each target into which it doesn't fit."""
    gpu = case.run.gpu
    most = judge(case.run, gpu).most_bytes if gpu else None
    if gpu and most is not None and most < LITTLE * gpu.memory_bytes:
        yield Finding(
            kind="memory-headroom",
            title=f"The job needs at most {most / GIB:.1f} of {gpu.memory_bytes / GIB:.0f} GiB of memory.",
            advice="A larger batch makes larger kernels (predict --batch 2); activation checkpointing isn't needed.",
            saves_us=None,
        )
    for target in case.targets:
        if target.memory.fits is False:
            yield Finding(
                kind=LACKING,
                title=f"The job doesn't fit into the memory of {target.label}: {target.memory.reason}.",
                advice="Shard it over more ranks (FSDP, ZeRO), offload, or take a smaller optimizer state.",
                saves_us=None,
                on=target.label,
            )
