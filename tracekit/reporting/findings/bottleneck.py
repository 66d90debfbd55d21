"""Finding: the bottleneck on a target."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracekit.analysis.critical_path import compute_resource_shares
from tracekit.arrays import Floats
from tracekit.messages import Message
from tracekit.messages import evidence as shown
from tracekit.messages import findings as told
from tracekit.prediction import Prediction
from tracekit.program import Program, round_to_ns
from tracekit.replay.engine import replay
from tracekit.reporting.findings.context import MAX_EVIDENCE_ROWS, FindingContext
from tracekit.reporting.findings.finding import Bottleneck, Evidence, Finding

MIN_BOTTLENECK_PCT = 50.0
"""Percent of the critical path from which on a resource is the bottleneck."""
BOTTLENECKS = {
    "host": told.CPU_IS_BOTTLENECK,
    "communication": told.COMMUNICATION_IS_BOTTLENECK,
    "gpu": told.GPU_IS_BOTTLENECK,
}


@dataclass(frozen=True, slots=True)
class StepLimiter:
    """The resource that takes most of a step's critical path.

    Attributes:
        kind: ``host``, ``communication`` or ``gpu``.
        share: Percent of the critical path.
    """

    kind: str
    share: float


def merge_bottlenecks(alike: Sequence[Finding]) -> Message:
    """Return one message for several targets with the same bottleneck."""
    found = [one.bottleneck for one in alike if one.bottleneck]
    on, shares = [one.on or "" for one in alike], [one.share for one in found]
    return BOTTLENECKS[found[0].limit](targets=on, shares_pct=shares, measured_pct=found[0].share_here)


def find_limiter(target: Prediction) -> StepLimiter | None:
    """Find the resource that limits a predicted step; ``None`` if none takes most of it."""
    return _choose_limiter(_compute_target_shares(target))


def find_bottlenecks(context: FindingContext) -> Iterator[Finding]:
    """Find the bottleneck of every target: the resource that takes most of its critical path."""
    here = _compute_path_shares(context.run.program, context.run.program.kernel_us)
    for target in context.targets:
        if context.run.gpu is not None and target.label == context.run.gpu.slug:
            continue
        if (finding := _make_finding(target, here, _compute_target_shares(target))) is not None:
            yield finding


def _compute_target_shares(target: Prediction) -> dict[str, float]:
    """Compute the percent of a predicted step by resource; the bubble of a pipeline belongs to none of them."""
    works = 1 - target.pipeline.bubble if target.pipeline else 1.0
    shares = _compute_path_shares(target.program, target.replayed_kernels["time_us"].to_numpy())
    return {kind: works * share for kind, share in shares.items()}


def _compute_path_shares(program: Program, time_us: Floats) -> dict[str, float]:
    """Compute the percent of the critical path by resource; ``time_us`` already includes what-if edits."""
    return compute_resource_shares(program, replay(program.graph, round_to_ns(time_us * 1e3, "kernels")))


def _choose_limiter(shares: dict[str, float]) -> StepLimiter | None:
    kind = max(shares, key=lambda name: shares[name], default="")
    if kind not in BOTTLENECKS or shares[kind] < MIN_BOTTLENECK_PCT:
        return None
    return StepLimiter(kind, shares[kind])


def _make_finding(target: Prediction, here: dict[str, float], there: dict[str, float]) -> Finding | None:
    found = _choose_limiter(there)
    if found is None:
        return None
    ordered = sorted(there.items(), key=lambda item: -item[1])[:MAX_EVIDENCE_ROWS]
    share_here = here.get(found.kind, 0.0)
    return Finding(
        message=BOTTLENECKS[found.kind](targets=[target.label], shares_pct=[found.share], measured_pct=share_here),
        saves_us=None,
        evidence=tuple(
            Evidence(
                name,
                None,
                shown.SHARE_OF_CRITICAL_PATH(path_pct=share, measured_pct=here.get(name, 0.0)),
            )
            for name, share in ordered
        ),
        on=target.label,
        bottleneck=Bottleneck(found.kind, found.share, share_here),
    )
