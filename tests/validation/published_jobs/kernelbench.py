"""Capture the kernels of KernelBench's programs, and read their published times.

A program is a file of a KernelBench checkout (423217d) with a ``Model``, ``get_init_inputs`` and ``get_inputs``. The
published times are means of 100 eager forward passes in fp32 between CUDA events, for the sizes since 2025-07-21.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import torch
from torch.nn import functional

from tests.validation.study import read_published
from tracekit.capturing.calls import Call
from tracekit.capturing.cuda_choices import drop_out
from tracekit.capturing.ops import Capture
from tracekit.capturing.program import tabulate_kernels

WITHOUT_TF32 = ("adaexplore",)
FILES_SINCE = {
    "level1/12_Matmul_with_diagonal_matrices_": ("adaexplore",),
    "level1/92_cumsum_exclusive": ("adaexplore",),
    "level1/97_ScaledDotProductAttention": ("adaexplore",),
}
"""Programs that were changed after some sources had timed them, and the sources that timed what is there now."""


@dataclass(frozen=True)
class TimedProgram:
    """Time of a program on one GPU."""

    source: str
    program: str
    gpu: str
    us: float

    @property
    def tf32(self) -> bool:
        """Return whether its convolutions ran in TF32 where there is."""
        return self.source not in WITHOUT_TF32


def read_timed_programs() -> Iterator[TimedProgram]:
    """Yield the published times of the programs as they are."""
    for row in read_published("kernelbench").iter_rows(named=True):
        if row["source"] in FILES_SINCE.get(row["program"], (row["source"],)):
            yield TimedProgram(row["source"], row["program"], row["gpu"], 1e3 * row["ms"])


@cache
def tabulate_program_kernels(path: Path, tf32: bool) -> pl.DataFrame:
    """Return a program's kernels, as tracekit reads them from a trace of it, without their times.

    Args:
        path: Its file.
        tf32: Whether convolutions run in TF32 where there is.
    """
    single = (pl.col("family") == "conv") & pl.lit(not tf32)
    return tabulate_kernels(capture_calls(path)).with_columns(tensor_core=pl.when(single).then(pl.lit(False)))


def capture_calls(path: Path) -> list[Call]:
    """Return the ops of one forward pass that launch kernels."""
    seen = Capture()
    program: dict[str, Any] = {"__name__": path.stem}
    with torch.device("meta"), torch.no_grad(), patch.multiple(functional, **ON_CUDA):
        exec(compile(path.read_text(), path.name, "exec"), program)
        inputs = _call(program, "get_inputs")
        model = program["Model"](*_call(program, "get_init_inputs"))
        with seen:
            model(*inputs)
    return seen.calls


def _call(program: dict[str, Any], name: str) -> list[Any]:
    return list(program[name]())


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Compute attention by the memory-efficient kernel, since flash attention has no fp32."""
    fused = torch.ops.aten._scaled_dot_product_efficient_attention
    return fused(query, key, value, attn_mask, False, dropout_p, is_causal, scale=scale)[0]


ON_CUDA: dict[str, Any] = {"dropout": drop_out, "scaled_dot_product_attention": _attend}
"""Functions that PyTorch makes of other ops where there is no GPU."""
