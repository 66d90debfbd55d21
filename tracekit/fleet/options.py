"""Define what is known of a job of many ranks, and where it is predicted."""

from collections.abc import Sequence
from dataclasses import dataclass

from predictors.kernel_identity import parse_framework
from tracekit.messages import name_option
from tracekit.models.lookups import IndexPattern
from tracekit.prediction.cost import NO_PRICES, GivenPrices
from tracekit.prediction.question import FASTEST, Question
from tracekit.rules import NO_RULES, RuleNames

FLEET_OPTIONS = frozenset(
    (
        "gpu",
        "cluster",
        "source_gpu",
        "source_cluster",
        "steps",
        "framework",
        "model_config",
        "zipf",
        "indices",
        "accepted_tokens",
    )
) | {
    *("without_rule", "no_calibration", "no_scoreboard"),
    *("price", "prices", "samples", "rank_by", "steps_to_run", "tokens_to_run", "samples_to_run"),
}
"""Options of a prediction that also predictions rank by rank have."""
KEPT_OPTIONS = FLEET_OPTIONS | {"engine", "store", "memory", "no_cache", "top", "verbose", "strict"}
"""All options that a prediction rank by rank has."""


def name_fleet_option(option: str) -> str:
    """Name an option as the command line does; say of one that predictions rank by rank refuse that they do."""
    name = name_option(option)
    return name if option.replace("-", "_") in KEPT_OPTIONS else f"{name} (without {name_option('engine')})"


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """What is known of a job of many ranks, and where it is predicted.

    Attributes:
        gpus: Names of target GPUs.
        clusters: Names of target clusters.
        source_gpu: The GPU of the traces, if they don't name it or name it wrongly.
        source_cluster: Where they were recorded; None for the usual nodes of their GPU.
        steps: The steps to measure, ``"7"`` or ``"7:9"``; all by default.
        without: Inference rules that are off.
        model_config: The ``config.json`` of the model that a serving engine ran.
        framework: The serving engine that ran it.
        indices: How rows of embedding tables are looked up.
        accepted_tokens: Tokens that each sequence gets in a step of speculative decoding; None if unknown.
        prices: Dollars for an hour of one GPU.
        samples: Samples that a rank processes in a measured step; None to infer them from the trace.
        question: What is to be decided between the targets.
        calibrated: Use the calibrations stored on this machine.
        scored: Fit intervals to the outcomes kept on this machine.
        cache: Use the cache of decoded traces.
        memory: Memory limit of one rank's tables, such as ``"2G"``.
        store: Folder that all workers reach, for the ranks' tables; each worker's own disk by default.
    """

    gpus: Sequence[str] = ()
    clusters: Sequence[str] = ()
    source_gpu: str | None = None
    source_cluster: str | None = None
    steps: str | None = None
    without: RuleNames = NO_RULES
    model_config: str | None = None
    framework: str | None = None
    indices: IndexPattern | None = None
    accepted_tokens: float | None = None
    prices: GivenPrices = NO_PRICES
    samples: float | None = None
    question: Question = FASTEST
    calibrated: bool = True
    scored: bool = True
    cache: bool = False
    memory: str | int | None = None
    store: str | None = None

    @property
    def has_targets(self) -> bool:
        """Whether any target is given."""
        return bool(self.gpus or self.clusters)

    @property
    def serving_engine(self) -> tuple[str, str | None] | None:
        """The serving engine's name and version; None if it isn't given."""
        return parse_framework(self.framework) if self.framework else None
