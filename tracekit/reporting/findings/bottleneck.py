"""Findings about the whole step: the bottleneck on a target, and the largest part if no other finding is about it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from tracekit.analysis.critical_path import COMMUNICATION, GPU, HOST, LATENCY
from tracekit.analysis.idle_causes import CAUSE_MEANINGS, IdleCause
from tracekit.messages import Message, Value
from tracekit.messages import findings as told
from tracekit.messages.model import Template
from tracekit.reporting.findings.context import MAX_EVIDENCE_ROWS, Bottleneck, Evidence, Finding, FindingContext
from tracekit.reporting.sections.decision import name_some
from tracekit.reporting.sections.step import COLLECTIVE, ReplayedShares, StepPart

MIN_BOTTLENECK_PCT = 50.0
"""Percent of the critical path from which on a resource is the bottleneck."""
BY_HOST = {"host or gpu": (HOST, GPU), "latency or gpu": (LATENCY, GPU), "gpu or host": (GPU, HOST)}
"""Limiters of a step that change with the host, which isn't known: the most likely one, and another host's."""
BOTTLENECKS = {
    "host": told.CPU_IS_BOTTLENECK,
    "communication": told.COMMUNICATION_IS_BOTTLENECK,
    "gpu": told.GPU_IS_BOTTLENECK,
    "latency": told.LATENCY_IS_BOTTLENECK,
    "unexplained": told.UNEXPLAINED_IS_BOTTLENECK,
    "host or gpu": told.CPU_OR_GPU_IS_BOTTLENECK,
    "latency or gpu": told.LATENCY_OR_GPU_IS_BOTTLENECK,
    "gpu or host": told.GPU_OR_CPU_IS_BOTTLENECK,
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
    """Choose the resource with most percent of a step's critical path; ``None`` if none takes most of it."""
    kind = max(resources, key=lambda name: resources[name], default="")
    return StepLimiter(kind, resources[kind]) if kind and resources[kind] >= MIN_BOTTLENECK_PCT else None


def find_bottlenecks(context: FindingContext) -> Iterator[Finding]:
    """Find the bottleneck of every target: the resource that takes most of its critical path."""
    here, *there = context.replayed
    for target, shares in zip(context.targets, there, strict=True):
        is_same = context.run.gpu is not None and target.label == context.run.gpu.slug and not context.run.is_captured
        if not is_same and (limiter := choose_limiter_on_any_host(shares)) is not None:
            yield _make_finding(context, target.label, limiter, here.resources, shares.resources)


def choose_limiter_on_any_host(shares: ReplayedShares) -> StepLimiter | None:
    """Choose the limiter of a step: one of ``BY_HOST`` where it is the GPU beside one host, and not beside another."""
    limiter = choose_limiter(shares.resources)
    if limiter is None:
        return None
    others = {one.kind for one in map(choose_limiter, shares.on_other_hosts) if one}
    changed = next((by for by, (kind, other) in BY_HOST.items() if kind == limiter.kind and other in others), None)
    return limiter if changed is None else StepLimiter(changed, limiter.share)


def _make_finding(
    context: FindingContext, label: str, found: StepLimiter, here: Mapping[str, float], there: Mapping[str, float]
) -> Finding:
    ordered = sorted(there.items(), key=lambda item: -item[1])[:MAX_EVIDENCE_ROWS]
    template = BOTTLENECKS[found.kind]
    kind, _ = BY_HOST.get(found.kind, (found.kind, None))
    share_here = None if context.run.is_captured else here.get(kind, 0.0)
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
                told.SHARE_OF_CRITICAL_PATH(
                    path_pct=share, measured_pct=None if share_here is None else here.get(name, 0.0)
                ),
            )
            for name, share in ordered
        ),
        on=label,
        bottleneck=Bottleneck(found.kind, found.share, share_here),
    )


MIN_LIMIT_PCT = 60.0
"""Percent of the roofline from which on kernels count as near what the GPU can do."""
MIN_KNOWN_FRACTION = 0.5
"""Fraction of a family's time whose roofline time has to be known for its percent to be said."""
MIN_EXPOSED_FRACTION = 0.1
"""Fraction of the collectives' time that the step has to lose without them for them to count as a limit."""
IDLE_TEMPLATES = {
    HOST: told.LARGEST_IDLE_OF_CPU,
    LATENCY: told.LARGEST_IDLE_OF_LATENCY,
    COMMUNICATION: told.LARGEST_WAITING,
}


def find_largest_part(context: FindingContext, others: Iterable[Finding]) -> Iterator[Finding]:
    """Find the largest part of the step, unless one of the other findings is about it.

    Kernels save what they lack to the roofline; if that isn't known, and for idle time, the saving is all of it.
    """
    if not context.parts:
        return
    part = context.parts[0]
    if any(part.name in other.parts for other in others):
        return
    yield _describe_idle(context, part) if part.name in CAUSE_MEANINGS else _describe_kernels(context, part)


def _describe_kernels(context: FindingContext, part: StepPart) -> Finding:
    kernels = context.select_families(part.name)
    known = kernels.filter(pl.col("bound_us") > 0)
    known_us, whole_us = float(known["time_us"].sum()), float(kernels["time_us"].sum())
    is_known = part.owner == GPU and known_us >= MIN_KNOWN_FRACTION * whole_us > 0
    times_us = pl.Series([0.0]).new_from_index(0, kernels.height)
    if is_known:
        bound_us = pl.col("bound_us").fill_null(pl.col("time_us"))
        times_us = kernels.select(pl.min_horizontal(bound_us, "time_us")).to_series()
    saves_us = max(context.compute_saving_us(kernels, times_us), 0.0)
    reached_pct = 100 * float(known["bound_us"].sum()) / known_us if is_known else None
    return Finding(
        message=_describe_family(part, saves_us, reached_pct),
        saves_us=saves_us,
        evidence=context.list_evidence(kernels),
        parts=(part.name,),
    )


def _describe_family(part: StepPart, saves_us: float, reached_pct: float | None) -> Message:
    if reached_pct is not None:
        return _describe_known(part, reached_pct)
    if part.name != COLLECTIVE:
        return told.LARGEST_KERNELS_UNKNOWN(family=part.name, time_us=part.time_us, step_pct=part.share)
    is_hidden = saves_us < MIN_EXPOSED_FRACTION * part.time_us
    template = told.LARGEST_COLLECTIVES_HIDDEN if is_hidden else told.LARGEST_COLLECTIVES
    return template(time_us=part.time_us, step_pct=part.share)


def _describe_known(part: StepPart, reached_pct: float) -> Message:
    template = told.LARGEST_KERNELS_AT_LIMIT if reached_pct >= MIN_LIMIT_PCT else told.LARGEST_KERNELS
    return template(family=part.name, time_us=part.time_us, step_pct=part.share, reached_pct=min(reached_pct, 100.0))


def _describe_idle(context: FindingContext, part: StepPart) -> Finding:
    template, cause = _choose_idle_template(context, part), IdleCause(part.name)
    values: dict[str, Value] = {
        "time_us": part.time_us,
        "step_pct": part.share,
        "cause": CAUSE_MEANINGS[cause],
        "remedies": context.list_launch_remedies(),
    }
    return Finding(
        message=template(**{name: value for name, value in values.items() if name in template.fields}),
        saves_us=part.time_us,
        evidence=context.list_late_launches(told.IDLE_BEFORE(), cause),
        parts=(part.name,),
    )


def _choose_idle_template(context: FindingContext, part: StepPart) -> Template:
    if part.name == IdleCause.IN_GRAPH:
        return told.LARGEST_IDLE_IN_GRAPH
    if part.name == IdleCause.UNRECORDED:
        return told.LARGEST_UNRECORDED_WORK
    has_all_ranks = len(context.run.ranks) >= context.run.trace.world_size
    if part.name == IdleCause.RENDEZVOUS and has_all_ranks:
        return told.LARGEST_WAITING_OF_ALL
    return IDLE_TEMPLATES.get(part.owner, told.LARGEST_IDLE_UNEXPLAINED)
