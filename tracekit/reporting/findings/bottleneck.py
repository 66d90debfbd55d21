"""Finding: the bottleneck on a target."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracekit.messages import Message, Value
from tracekit.messages import findings as shown
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import MAX_EVIDENCE_ROWS, FindingContext
from tracekit.reporting.findings.finding import Bottleneck, Evidence, Finding
from tracekit.reporting.name_some import name_some

MIN_BOTTLENECK_PCT = 50.0
"""Percent of the critical path from which on a resource is the bottleneck."""
BOTTLENECKS = {
    "host": told.CPU_IS_BOTTLENECK,
    "communication": told.COMMUNICATION_IS_BOTTLENECK,
    "gpu": told.GPU_IS_BOTTLENECK,
    "latency": told.LATENCY_IS_BOTTLENECK,
    "unexplained": told.UNEXPLAINED_IS_BOTTLENECK,
}


@dataclass(frozen=True, slots=True)
class StepLimiter:
    """The resource that takes most of a step's critical path.

    Attributes:
        kind: A key of ``BOTTLENECKS``.
        share: Percent of the critical path.
    """

    kind: str
    share: float


MOST_NAMED = 8
"""Most targets that the message about several names."""


def merge_bottlenecks(alike: Sequence[Finding]) -> Message:
    """Return one message for several targets with the same bottleneck."""
    first = alike[0].message
    shares = [one.bottleneck.share for one in alike if one.bottleneck]
    targets = name_some([one.on or "" for one in alike], MOST_NAMED)
    return first.template(**{**first.values, "targets": targets, "shares_pct": shares})


def choose_limiter(resources: Mapping[str, float]) -> StepLimiter | None:
    """Choose the resource that limits a step; ``None`` if none takes most of its critical path.

    Args:
        resources: Percent of the critical path by resource.
    """
    kind = max(resources, key=lambda name: resources[name], default="")
    return StepLimiter(kind, resources[kind]) if kind and resources[kind] >= MIN_BOTTLENECK_PCT else None


def find_bottlenecks(context: FindingContext) -> Iterator[Finding]:
    """Find the bottleneck of every target: the resource that takes most of its critical path."""
    here, *there = (shares.resources for shares in context.replayed)
    for target, resources in zip(context.targets, there, strict=True):
        is_same = context.run.gpu is not None and target.label == context.run.gpu.slug and not context.run.is_captured
        if not is_same and (limiter := choose_limiter(resources)) is not None:
            yield _make_finding(context, target.label, limiter, here, resources)


def _make_finding(
    context: FindingContext, label: str, found: StepLimiter, here: Mapping[str, float], there: Mapping[str, float]
) -> Finding:
    ordered = sorted(there.items(), key=lambda item: -item[1])[:MAX_EVIDENCE_ROWS]
    template = BOTTLENECKS[found.kind]
    share_here = None if context.run.is_captured else here.get(found.kind, 0.0)
    values: dict[str, Value] = {"targets": [label], "shares_pct": [found.share], "measured_pct": share_here}
    if "remedies" in template.fields:
        values["remedies"] = context.list_launch_remedies()
    return Finding(
        message=template(**values),
        saves_us=None,
        evidence=tuple(
            Evidence(
                name,
                None,
                shown.SHARE_OF_CRITICAL_PATH(
                    path_pct=share, measured_pct=None if share_here is None else here.get(name, 0.0)
                ),
            )
            for name, share in ordered
        ),
        on=label,
        bottleneck=Bottleneck(found.kind, found.share, share_here),
    )
