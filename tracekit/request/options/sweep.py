"""Request of a sweep."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Annotated

from tracekit.errors import RequestError
from tracekit.messages import requests as messages
from tracekit.numbers import NUMBER_PATTERN
from tracekit.request.option import Option, Panel, split_values
from tracekit.request.options.layout import (
    EXPERT_PARALLEL,
    MAX_BATCH_FACTOR,
    MIN_BATCH_FACTOR,
    PIPELINE_PARALLEL,
    TENSOR_PARALLEL,
    WORLD_SIZE,
    ScheduleOptions,
)
from tracekit.request.options.run import RunOptions
from tracekit.request.options.target import TargetOptions

LARGEST_BATCH = "max"


@dataclass(frozen=True, kw_only=True)
class SweepRequest(RunOptions, ScheduleOptions, TargetOptions):
    """Predictions of many layouts on some targets."""

    panel = Panel.LAYOUT

    world_size: Annotated[int | Sequence[int], WORLD_SIZE] = ()
    tp: Annotated[int | Sequence[int], TENSOR_PARALLEL] = ()
    pp: Annotated[int | Sequence[int], PIPELINE_PARALLEL] = ()
    ep: Annotated[int | Sequence[int], EXPERT_PARALLEL] = ()
    batch: Annotated[
        float | str | None,
        Option(
            "Each rank's batch, as a multiple of the trace's, or max for the largest whole one that surely fits.",
            "Batch, times the trace's",
            "FACTOR",
        ),
    ] = None

    @property
    def world_sizes(self) -> tuple[int, ...]:
        """Numbers of ranks."""
        return split_values(self.world_size)

    @property
    def tensor_parallel(self) -> tuple[int, ...]:
        """Numbers of tensor-parallel ranks."""
        return split_values(self.tp)

    @property
    def pipeline_parallel(self) -> tuple[int, ...]:
        """Numbers of stages."""
        return split_values(self.pp)

    @property
    def expert_parallel(self) -> tuple[int, ...]:
        """Numbers of expert-parallel ranks."""
        return split_values(self.ep)

    @property
    def batch_factor(self) -> float | None:
        """The multiple of the batch; infinite for the largest that fits."""
        if self.batch is None:
            return None
        text = str(self.batch).strip()
        if text == LARGEST_BATCH:
            return inf
        factor = float(text) if re.fullmatch(NUMBER_PATTERN, text) else 0.0
        if not MIN_BATCH_FACTOR <= factor <= MAX_BATCH_FACTOR:
            raise RequestError(
                messages.BATCH_FACTOR_MALFORMED(batch=text, least=MIN_BATCH_FACTOR, most=MAX_BATCH_FACTOR)
            )
        return factor

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        self.require_target()
        super().check()
        _ = self.batch_factor
