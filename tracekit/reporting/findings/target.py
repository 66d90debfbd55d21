"""What becomes the bottleneck on a target."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tracekit.arrays import Floats
from tracekit.prediction import Prediction
from tracekit.replay.critical import critical_path
from tracekit.replay.engine import replay
from tracekit.replay.run import Run, whole_ns
from tracekit.reporting.findings.case import ROWS, Case
from tracekit.reporting.findings.model import Evidence, Finding
from tracekit.units import percent, percent_between

BOTTLENECK = "bottleneck-there"
MOSTLY = 50.0
"""Percent of the critical path from which on a part of it is the bottleneck."""
KIND = pl.when(pl.col("on") != "gpu").then("on").when(pl.col("family") == "collective").then(pl.lit("communication"))
SAID = {
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
class Limit:
    """What most of a step hinges on.

    Attributes:
        kind: ``host``, ``communication`` or ``gpu``.
        share: Of the critical path, in percent.
        said: A clause that the share is to be put into.
        advice: What to make of it.
    """

    kind: str
    share: float
    said: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck(Finding):
    """What most of a target's step hinges on.

    Attributes:
        limit: What does: ``host``, ``communication`` or ``gpu``.
        share: Percent of its critical path that it takes.
        share_here: Percent of the measured step's critical path that it takes.
    """

    limit: str
    share: float
    share_here: float


def sentence(alike: Sequence[Bottleneck]) -> str:
    """What is said of the targets on which the same thing sets the pace."""
    first, on, shares = alike[0], [one.on or "" for one in alike], [one.share for one in alike]
    return _sentence(first.limit, on, shares, first.share_here)


def _sentence(kind: str, on: Sequence[str], shares: Sequence[float], here: float) -> str:
    said, _ = SAID[kind]
    return f"On {', '.join(on)} {said.format(percent_between(shares))} (measured: {percent(here)})."


def limit(target: Prediction) -> Limit | None:
    """What sets the pace of a predicted step; None where no one thing does."""
    return _limit(_shares_there(target))


def find(case: Case) -> Iterator[Finding]:
    """Fires for every target on which one thing takes most of the critical path, and another or less of it did here."""
    here = _shares(case.run, case.run.kernel_us)
    for target in case.targets:
        if case.run.gpu is not None and target.label == case.run.gpu.slug:
            continue
        if (finding := _finding(target, here, _shares_there(target))) is not None:
            yield finding


def _shares_there(target: Prediction) -> dict[str, float]:
    """Of a predicted step; while a stage of a pipeline waits for others, nothing of this sets the pace."""
    works = 1 - target.pipeline.bubble if target.pipeline else 1.0
    shares = _shares(target.run, target.replayed["time_us"].to_numpy())
    return {kind: works * share for kind, share in shares.items()}


def _shares(run: Run, time_us: Floats) -> dict[str, float]:
    """Percent of the critical path by what it is spent on; edits of kernels are in the times."""
    durations = whole_ns(time_us * 1e3, "kernels")
    path = critical_path(run, replay(run.graph, durations))
    kinds = path.pieces.group_by(kind=KIND.otherwise(pl.lit("gpu"))).agg(pl.col("time_ns").sum()).sort("kind")
    return {kind: 100 * time_ns / max(path.span_ns, 1) for kind, time_ns in kinds.iter_rows()}


def _limit(shares: dict[str, float]) -> Limit | None:
    kind = max(shares, key=lambda name: shares[name], default="")
    if kind not in SAID or shares[kind] < MOSTLY:
        return None
    said, advice = SAID[kind]
    return Limit(kind, shares[kind], said, advice)


def _finding(target: Prediction, here: dict[str, float], there: dict[str, float]) -> Bottleneck | None:
    found = _limit(there)
    if found is None:
        return None
    ordered = sorted(there.items(), key=lambda item: -item[1])[:ROWS]
    share_here = here.get(found.kind, 0.0)
    return Bottleneck(
        kind=BOTTLENECK,
        title=_sentence(found.kind, [target.label], [found.share], share_here),
        advice=found.advice,
        saves_us=None,
        evidence=tuple(
            Evidence(name, None, f"{percent(share)} of the critical path, measured: {percent(here.get(name, 0.0))}")
            for name, share in ordered
        ),
        on=target.label,
        limit=found.kind,
        share=found.share,
        share_here=share_here,
    )
