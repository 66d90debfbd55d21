"""Programs of KernelBench: what each launches, and how long it took on several GPUs.

A program is a file with a ``Model``, ``get_init_inputs`` and ``get_inputs``. The files themselves are read from a
checkout of ScalingIntelligence/KernelBench (423217d); programs.csv has the published times (mean of 100, CUDA events
around one eager forward pass, fp32), all for the sizes since 2025-07-21:

modal, lambda: there, results/timing/H100_Modal (PyTorch 2.9, L2 flushed before each) and H100_PCIe_LambdaLabs (2.5).
vegeta: grannypuppy/kernel-api, results/timing/L40S (2.5).
adaexplore: StigLidu/AdaExplore at c36637c, results/timing; TF32 is off for convolutions too.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import torch
from torch.nn import functional

from tests.validation.published_jobs.capture import Call, Capture
from tests.validation.published_jobs.kernels import table_of

TABLE = Path(__file__).parents[1] / "published" / "kernelbench.csv"
WITHOUT_TF32 = ("adaexplore",)
FILES_SINCE = {
    "level1/12_Matmul_with_diagonal_matrices_": ("adaexplore",),
    "level1/92_cumsum_exclusive": ("adaexplore",),
    "level1/97_ScaledDotProductAttention": ("adaexplore",),
}
"""Programs that were changed after some sources had timed them, and the sources that timed what is there now."""


@dataclass(frozen=True)
class Timed:
    """What a program took on one GPU."""

    source: str
    program: str
    gpu: str
    us: float

    @property
    def tf32(self) -> bool:
        """Whether its convolutions ran in TF32 where there is."""
        return self.source not in WITHOUT_TF32


def timed() -> Iterator[Timed]:
    """All that the table holds of the programs as they are."""
    with TABLE.open() as lines:
        for row in csv.DictReader(lines):
            if row["source"] in FILES_SINCE.get(row["program"], (row["source"],)):
                yield Timed(row["source"], row["program"], row["gpu"], 1e3 * float(row["ms"]))


@cache
def kernels(path: Path, tf32: bool) -> pl.DataFrame:
    """A program's kernels, as tracekit reads them from a trace of it, without their times.

    Args:
        path: Its file.
        tf32: Whether convolutions run in TF32 where there is.
    """
    single = (pl.col("family") == "conv") & pl.lit(not tf32)
    return table_of(calls(path)).with_columns(tensor_core=pl.when(single).then(pl.lit(False)))


def calls(path: Path) -> list[Call]:
    """The ops of one forward pass that launch kernels."""
    seen, program = Capture(), {"__name__": path.stem}
    with torch.device("meta"), torch.no_grad(), patch.multiple(functional, **ON_CUDA):
        exec(compile(path.read_text(), path.name, "exec"), program)
        inputs = _call(program, "get_inputs")
        model = program["Model"](*_call(program, "get_init_inputs"))
        with seen:
            model(*inputs)
    return seen.calls


def _call(program: dict[str, Any], name: str) -> list[Any]:
    return list(program[name]())


def _dropped(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    return torch.native_dropout(x, p, train=True)[0] if training and 0 < p < 1 else x


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Flash attention has no fp32."""
    fused = torch.ops.aten._scaled_dot_product_efficient_attention
    return fused(query, key, value, attn_mask, False, dropout_p, is_causal, scale=scale)[0]


ON_CUDA = {"dropout": _dropped, "scaled_dot_product_attention": _attention}
"""Functions that PyTorch makes of other ops where there is no GPU."""
