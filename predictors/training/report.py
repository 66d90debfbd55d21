"""The fit's errors as a card that ships with the weights, and as tables for the documentation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from predictors.fitted import Weights
from predictors.intervals import SITUATIONS

_HEADER = """\
# What these weights were fitted on and how far off they were on what they hadn't seen.
# Errors: |predicted / measured - 1| in percent, median and 90th percentile over kernels longer than 20 us
# (200 us where the measurement has the launch in it).

[data]
aiconfigurator = "github.com/ai-dynamo/aiconfigurator, Apache-2.0: kernels in CUDA graphs, L2 mostly warm"
neusight = "github.com/sitar-lab/NeuSight, MIT: fp32 operators, eager PyTorch 2.1, launch included and fitted away"
tracelens = "github.com/AMD-AGI/TraceLens, MIT: operators of real jobs on MI300X and H100, profiled"
"""
COLUMNS = ("GPU", "in base", "held out", "bias", "held out, law alone", "roofline", "peak ratio", "kernels")
WIDTHS_ARE = "Factor by which a kernel may be faster or slower, 90 %, by situation."
TITLES = {
    "gemm half": "GEMM, bf16",
    "gemm fp8": "GEMM, fp8",
    "gemm fp8_block": "GEMM, fp8 in blocks",
    "gemm nvfp4": "GEMM, nvfp4",
    "gemm fp32": "GEMM, fp32",
    "prefill": "Attention, prefill (bf16 and fp8)",
    "decode": "Attention, decode (bf16 and fp8 cache)",
    "encoder": "Attention, encoder, bf16",
    "moe half": "MoE, bf16",
    "moe fp8": "MoE, fp8",
    "moe fp8_block": "MoE, fp8 in blocks",
    "moe nvfp4": "MoE, nvfp4",
    "conv half": "Convolution, bf16, layout changes included",
    "conv fp32": "Convolution 3×3, fp32 without TF32",
    "elementwise": "Elementwise",
    "softmax": "Softmax",
    "norm": "Layer norm",
    "copy": "Copies and joins on the GPU",
    "reduction": "Reductions",
}


def card(weights: Weights, errors: pl.DataFrame, held_out: Sequence[str]) -> str:
    """The TOML text of `card.toml`.

    Args:
        weights: what was fitted.
        errors: from `evaluate.table`.
        held_out: slugs of the GPUs that were left out of everything.
    """
    lines = [_HEADER, f"held_out = {_strings(held_out)}", ""]
    for law, fitted in sorted(weights.laws.items()):
        lines += [f'[laws."{law}"]', f"gpus = {_strings(sorted(fitted.gpu))}"]
        for row in errors.filter(pl.col("law") == law).iter_rows(named=True):
            kind = "in_base" if row["situation"] == "base" else "left_out"
            figures = f"median = {row['model_median']:.1f}, p90 = {row['model_p90']:.1f}, kernels = {row['n']}"
            lines.append(f'{kind}."{row["gpu"]}" = {{ {figures} }}')
        lines.append("")
    return "\n".join(lines)


def markdown(errors: pl.DataFrame, weights: Weights) -> str:
    """The tables of docs/accuracy.md: errors of every law on every GPU, then the widths of the intervals.

    Args:
        errors: from `evaluate.table`.
        weights: their intervals.
    """
    order = {law: place for place, law in enumerate(TITLES)}
    laws = sorted(errors["law"].unique().to_list(), key=lambda law: (order.get(law, len(order)), law))
    parts = [_law_table(law, errors.filter(pl.col("law") == law)) for law in laws]
    widths = [
        f"| {law} | " + " | ".join(f"× {math.exp(weights.intervals[law][where]):.2f}" for where in SITUATIONS) + " |"
        for law in sorted(weights.intervals)
    ]
    head = ["## Widths of the intervals", "", WIDTHS_ARE, "", f"| | {' | '.join(SITUATIONS)} |", "|---" * 5 + "|"]
    return "\n".join([*parts, *head, *widths, ""])


def _law_table(law: str, rows: pl.DataFrame) -> str:
    """One line per GPU: in the base, then held out, with the law alone and the baselines for the held-out case."""
    lines = [f"### {TITLES.get(law, law)}", "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for (gpu,), both in rows.group_by("gpu", maintain_order=True):
        base = both.filter(pl.col("situation") == "base").row(0, named=True)
        out = both.filter(pl.col("situation") != "base").to_dicts()
        held = [f"{_figure(out[0], 'model')} ({out[0]['situation']})", f"{out[0]['bias']:+.0f}"] if out else ["–", "–"]
        row = out[0] if out else base
        alone = _figure(row, "law") if out else "–"
        cells = [str(gpu), _figure(base, "model"), *held, alone, _figure(row, "roofline"), _figure(row, "peak_ratio")]
        lines.append(f"| {' | '.join(cells)} | {base['n']} |")
    return "\n".join([*lines, ""])


def _figure(row: dict[str, float | None], name: str) -> str:
    median, p90 = row[f"{name}_median"], row[f"{name}_p90"]
    return "–" if median is None or p90 is None else f"{median:.1f} / {p90:.0f}"


def _strings(items: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{item}"' for item in items) + "]"
