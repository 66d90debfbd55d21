"""How long a batch of requests takes an engine: what simulators of schedulers ask of a predictor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.arrays import Floats
from tracekit.served.step_table import EngineStepTable, EngineStepTables

SGLANG_FEATURES = (
    *("batch_size", "sum_extend", "max_extend", "min_extend", "sum_past", "max_past", "min_past"),
    *("sum_extend_x_past", "sum_extend_squared", "sum_past_squared", "sum_attn_flops", "sum_extend_x_max_past"),
    *("log1p_sum_past", "log1p_sum_attn_flops", "batch_size_x_sum_extend", "max_past_minus_min_past"),
    *("is_decode", "is_prefill"),
)
"""What SGLang's simulator tells its predictor ``ml`` of a batch, in order (tools/sglang-simulator, v0.5.18)."""


@dataclass(frozen=True, slots=True)
class BatchSize:
    """What a step works on.

    Attributes:
        prompt_tokens: New tokens of prompts.
        pairs: Pairs of a query and a key in their attention.
        sequences: Sequences that decode.
        held_tokens: Tokens in the cache of all of these together.
    """

    prompt_tokens: float
    pairs: float
    sequences: float
    held_tokens: float


@dataclass(frozen=True, slots=True)
class StepTimer:
    """Times of an engine's steps by their requests.

    Attributes:
        tables: Steps between which it interpolates.
    """

    tables: EngineStepTables

    def time_batch_us(self, requests: Sequence[tuple[int, int]]) -> tuple[float, float, float]:
        """Return how long a step takes: low, likely and high.

        Args:
            requests: Of each request its new tokens and those that the cache holds; one new token behind others is a
                sequence that decodes.
        """
        new, held = np.array(requests, np.float64).reshape(-1, 2).T
        decodes = (new == 1) & (held > 0)
        prompts, before = new[~decodes], held[~decodes]
        size = BatchSize(
            prompt_tokens=float(prompts.sum()),
            pairs=float((prompts * (before + prompts / 2)).sum()),
            sequences=float(decodes.sum()),
            held_tokens=float(held[decodes].sum()),
        )
        low, likely, high = (time_step_us(one, size) for one in (self.tables.low, self.tables.likely, self.tables.high))
        return low, likely, high

    def predict(self, batches: Sequence[Sequence[float]]) -> list[float]:
        """Return the likely seconds of batches, as SGLang's simulator asks its predictor ``ml``.

        Args:
            batches: :data:`SGLANG_FEATURES` of each.
        """
        return [time_step_us(self.tables.likely, _read_features(one)) / 1e6 for one in batches]


def _read_features(features: Sequence[float]) -> BatchSize:
    told = dict(zip(SGLANG_FEATURES, features, strict=True))
    if told["is_decode"]:
        return BatchSize(0.0, 0.0, told["batch_size"], told["sum_past"])
    return BatchSize(told["sum_extend"], told["sum_attn_flops"], 0.0, 0.0)


def time_step_us(table: EngineStepTable, size: BatchSize) -> float:
    """Return the time of a step, as the engine's loop does: linear between the points, and on beyond the last two."""
    mean = size.held_tokens / size.sequences if size.sequences else 0.0
    tokens = _find_interval(table.new_tokens, size.prompt_tokens)
    sequences, contexts = _find_interval(table.sequences, size.sequences), _find_interval(table.contexts, mean)
    time_us = float(_interpolate(_interpolate(_interpolate(table.step_us, tokens), sequences), contexts))
    if size.prompt_tokens:
        time_us += table.pair_us * (size.pairs - float(_interpolate(table.pairs, tokens)))
    return max(float(time_us), 1.0)


def _interpolate(values: Floats, at: tuple[int, float]) -> Floats:
    """Interpolate along the first axis."""
    place, fraction = at
    between: Floats = values[place] * (1 - fraction) + values[place + 1] * fraction
    return between


def _find_interval(axis: Floats, value: float) -> tuple[int, float]:
    """Return the place of the point before a value, and how far it is to the next one."""
    place = int(np.clip(np.searchsorted(axis, value) - 1, 0, axis.size - 2))
    return place, float((value - axis[place]) / (axis[place + 1] - axis[place]))
