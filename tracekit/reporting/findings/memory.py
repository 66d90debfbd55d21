"""Finding: unused memory on the measured GPU, or too little memory on a target."""

from collections.abc import Iterator

from tracekit.messages import findings as told
from tracekit.prediction.memory import judge_memory_fit
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding

CHECKPOINT_OP = "CheckpointFunction"
"""Autograd function of ``torch.utils.checkpoint``."""
MAX_MEMORY_FRACTION = 0.5
"""Fraction of the GPU's memory below which the job could be larger."""


def find_memory_limits(context: FindingContext) -> Iterator[Finding]:
    """Find a job that needs at most half of its GPU's memory, and every target into whose memory it doesn't fit.

    Predictions of a larger batch are what the first would advise.
    """
    gpu = context.run.gpu
    most = judge_memory_fit(context.run.program, gpu, gpu).max_bytes if gpu else None
    has_larger_batch = any(target.batch_ratio > 1 for target in context.targets)
    if gpu and most is not None and most < MAX_MEMORY_FRACTION * gpu.memory_bytes and not has_larger_batch:
        template = told.MEMORY_HEADROOM_CHECKPOINTED if _is_checkpointed(context) else told.MEMORY_HEADROOM
        yield Finding(message=template(max_bytes=most, gpu_bytes=gpu.memory_bytes), saves_us=None)
    for target in context.targets:
        if target.memory.fits is False:
            yield Finding(
                message=told.DOES_NOT_FIT(target=target.label, reason=target.memory.reason),
                saves_us=None,
                on=target.label,
            )


def _is_checkpointed(context: FindingContext) -> bool:
    """Return whether activations are recomputed in the backward pass."""
    return any(rank.has_named("ops", CHECKPOINT_OP) for rank in context.run.ranks)
