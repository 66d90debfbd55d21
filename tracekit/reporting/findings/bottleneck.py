"""Finding: the bottleneck on a target."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tracekit.analysis.critical_path import compute_critical_path
from tracekit.arrays import Floats
from tracekit.format import format_percent, format_percent_range
from tracekit.prediction import Prediction
from tracekit.replay.engine import replay
from tracekit.reporting.findings.context import MAX_EVIDENCE_ROWS, FindingContext
from tracekit.reporting.findings.finding import Evidence, Finding
from tracekit.run import MeasuredRun, round_to_ns

BOTTLENECK_KIND = "bottleneck-there"
MIN_BOTTLENECK_PCT = 50.0
"""Percent of the critical path from which on a resource is the bottleneck."""
RESOURCE_EXPR = (
    pl.when(pl.col("on") != "gpu").then("on").when(pl.col("family") == "collective").then(pl.lit("communication"))
)
RESOURCE_TEXTS = {
    "host": (
        "the CPU sets the pace of {} of the step",
        "A faster GPU won't help there: fewer launches, CUDA graphs, torch.compile.",
    ),
    "communication": (
        "communication sets the pace of {} of the step",
        "Faster links would help more than a faster GPU.",
    ),
    "gpu": ("kernels set the pace of {} of the step", "A faster GPU, or less work, shortens it."),
}


@dataclass(frozen=True, slots=True)
class StepLimiter:
    """The resource that takes most of a step's critical path.

    Attributes:
        kind: ``host``, ``communication`` or ``gpu``.
        share: Percent of the critical path.
        clause: A clause with a placeholder for the share.
        advice: What to do about it.
    """

    kind: str
    share: float
    clause: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BottleneckFinding(Finding):
    """The resource that takes most of the critical path on a target.

    Attributes:
        limit: ``host``, ``communication`` or ``gpu``.
        share: Percent of the target's critical path.
        share_here: Percent of the measured step's critical path.
    """

    limit: str
    share: float
    share_here: float


def format_bottlenecks(alike: Sequence[BottleneckFinding]) -> str:
    """Format one sentence for several targets with the same bottleneck."""
    first, on, shares = alike[0], [one.on or "" for one in alike], [one.share for one in alike]
    return _format_sentence(first.limit, on, shares, first.share_here)


def _format_sentence(kind: str, on: Sequence[str], shares: Sequence[float], here: float) -> str:
    said, _ = RESOURCE_TEXTS[kind]
    return f"On {', '.join(on)} {said.format(format_percent_range(shares))} (measured: {format_percent(here)})."


def find_limiter(target: Prediction) -> StepLimiter | None:
    """Find the resource that limits a predicted step; ``None`` if none takes most of it."""
    return _choose_limiter(_compute_target_shares(target))


def find_bottlenecks(context: FindingContext) -> Iterator[Finding]:
    """Find the bottleneck of every target: the resource that takes most of its critical path."""
    here = _compute_path_shares(context.run, context.run.kernel_us)
    for target in context.targets:
        if context.run.gpu is not None and target.label == context.run.gpu.slug:
            continue
        if (finding := _make_finding(target, here, _compute_target_shares(target))) is not None:
            yield finding


def _compute_target_shares(target: Prediction) -> dict[str, float]:
    """Compute the percent of a predicted step by resource; the bubble of a pipeline belongs to none of them."""
    works = 1 - target.pipeline.bubble if target.pipeline else 1.0
    shares = _compute_path_shares(target.run, target.replayed_kernels["time_us"].to_numpy())
    return {kind: works * share for kind, share in shares.items()}


def _compute_path_shares(run: MeasuredRun, time_us: Floats) -> dict[str, float]:
    """Compute the percent of the critical path by resource; ``time_us`` already includes what-if edits."""
    durations = round_to_ns(time_us * 1e3, "kernels")
    path = compute_critical_path(run, replay(run.graph, durations))
    kinds = (
        path.segments.group_by(kind=RESOURCE_EXPR.otherwise(pl.lit("gpu"))).agg(pl.col("time_ns").sum()).sort("kind")
    )
    return {kind: 100 * time_ns / max(path.span_ns, 1) for kind, time_ns in kinds.iter_rows()}


def _choose_limiter(shares: dict[str, float]) -> StepLimiter | None:
    kind = max(shares, key=lambda name: shares[name], default="")
    if kind not in RESOURCE_TEXTS or shares[kind] < MIN_BOTTLENECK_PCT:
        return None
    said, advice = RESOURCE_TEXTS[kind]
    return StepLimiter(kind, shares[kind], said, advice)


def _make_finding(target: Prediction, here: dict[str, float], there: dict[str, float]) -> BottleneckFinding | None:
    found = _choose_limiter(there)
    if found is None:
        return None
    ordered = sorted(there.items(), key=lambda item: -item[1])[:MAX_EVIDENCE_ROWS]
    share_here = here.get(found.kind, 0.0)
    return BottleneckFinding(
        kind=BOTTLENECK_KIND,
        title=_format_sentence(found.kind, [target.label], [found.share], share_here),
        advice=found.advice,
        saves_us=None,
        evidence=tuple(
            Evidence(
                name,
                None,
                f"{format_percent(share)} of the critical path, measured: {format_percent(here.get(name, 0.0))}",
            )
            for name, share in ordered
        ),
        on=target.label,
        limit=found.kind,
        share=found.share,
        share_here=share_here,
    )
