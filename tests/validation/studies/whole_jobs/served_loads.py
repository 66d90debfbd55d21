"""Served models under a load: time to the first token and time per token at a concurrency, from the config alone.

Rows are of vLLM, SGLang and TensorRT-LLM on H100 and H200, as aiconfigurator publishes them beside its predictions.
Those of Llama 70B are InferenceX', the others its own benchmarks': each engine is asked with the settings that its
benchmark's scripts give it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

import tracekit as tk
from predictors import load_gpu
from tests.validation.study import SERVED_LOADS, find_input, format_table

INPUTS = (SERVED_LOADS,)
LLAMA = {"model_type": "llama", "vocab_size": 128256, "num_key_value_heads": 8}
CONFIGS: Mapping[str, Mapping[str, object]] = {
    "Qwen/Qwen3-32B": {
        "model_type": "qwen3",
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 25600,
        "vocab_size": 151936,
    },
    "meta-llama/Llama-3.1-8B-Instruct": {
        **LLAMA,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_size": 14336,
    },
    "meta-llama/Llama-3.1-70B": {
        **LLAMA,
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "intermediate_size": 28672,
    },
}
ALIASES = {"nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Llama-3.1-8B-Instruct"}
INFERENCEX_MODELS = ("meta-llama/Llama-3.1-70B",)
"""Rows of these are InferenceX', whose client draws lengths from 80 to 100 % of those told (random-range-ratio 0.8)."""
GENERATED_TOKENS = 128 + 1500
"""Tokens of a step beside a prompt's that aiconfigurator's generator of benchmarks gives vLLM and TensorRT-LLM."""
JOB = ["backend", "backend_version", "model_path", "system", "gemm_quant_mode", "isl", "osl", "tp"]
WEIGHTS = {"Qwen/Qwen3-32B": 32.8e9, "meta-llama/Llama-3.1-8B-Instruct": 8.0e9, "meta-llama/Llama-3.1-70B": 70.6e9}
"""Parameters, to leave out rows that are faster than their weights can be read."""


@dataclass(frozen=True)
class Outcome:
    """A prediction over what was measured: low, likely and high."""

    group: str
    tpot: tuple[float, float, float]
    ttft: tuple[float, float, float]


def run() -> str:
    """Return the table by engine, model, format and GPU, and that of all rows."""
    outcomes = list(predict_all(pl.read_csv(find_input(SERVED_LOADS) / "served.csv", infer_schema_length=None)))
    groups = sorted({one.group for one in outcomes})
    headings = ("engine, model, GPU", "rows", "TPOT", "bias", "inside", "width", "TTFT", "bias ", "inside ", "width ")
    rows = [describe(group, [one for one in outcomes if one.group == group]) for group in groups]
    return "\n".join(
        (
            "# Served loads\n",
            "Median and 90th percentile of the absolute error, median error, share of rows in the 90 % interval, and "
            "the interval's high end over its low end.\n",
            format_table(headings, [*rows, describe("all", outcomes)]),
        )
    )


def predict_all(rows: pl.DataFrame) -> Iterator[Outcome]:
    """Predict each row, those of one engine and length together."""
    for _, job in rows.group_by(JOB, maintain_order=True):
        first = job.row(0, named=True)
        model = ALIASES.get(first["model_path"], first["model_path"])
        precision = first["gemm_quant_mode"] or "bf16"
        gpu = first["system"].replace("_", "-")
        version = first["backend_version"]
        read_ms = WEIGHTS[model] * (2 if precision == "bf16" else 1) / first["tp"] / load_gpu(gpu).bandwidth_gbps / 1e6
        with TemporaryDirectory() as folder:
            config = Path(folder) / "config.json"
            config.write_text(json.dumps(CONFIGS[model]), encoding="utf-8")
            (target,) = tk.serving(
                config,
                gpu=gpu,
                framework=f"{first['backend']}=={version}" if version else first["backend"],
                tp=first["tp"],
                precision=precision,
                concurrency=job["concurrency"].to_list(),
                input_tokens=first["isl"],
                output_tokens=first["osl"],
                **find_settings(first["backend"], first["isl"], first["osl"], is_inferencex=model in INFERENCEX_MODELS),
            )
        name = f"{first['backend']}, {model.partition('/')[2]} {precision}, {gpu}"
        for row, answer in zip(job.iter_rows(named=True), target.loads, strict=True):
            if row["tpot_ms"] < read_ms:
                continue
            figures = [(answer.figures[f"{kind}_mean_ms"], row[f"{kind}_ms"]) for kind in ("tpot", "ttft")]
            yield Outcome(name, *((one.low / real, one.likely / real, one.high / real) for one, real in figures))


def find_settings(engine: str, isl: int, osl: int, *, is_inferencex: bool) -> dict[str, Any]:
    """Return how a benchmark sets an engine up.

    InferenceX: benchmarks/70b_fp8_h200_slurm.sh, 70b_fp8_h100_docker.sh and 70b_fp8_h200_trt_slurm.sh of its
    repository. The others: rule_plugin/benchmark of aiconfigurator, which leaves SGLang's chunks as they are.
    """
    if not is_inferencex:
        return {} if engine == "sglang" else {"max_batched_tokens": isl + GENERATED_TOKENS}
    return {"spread": 0.2, "cache_type": "fp8"} | (
        {"max_batched_tokens": isl + osl + 200} if engine == "trtllm" else {}
    )


def describe(group: str, outcomes: list[Outcome]) -> tuple[str, ...]:
    """Return the cells of a group."""
    tpot, ttft = (np.array([getattr(one, kind) for one in outcomes]) for kind in ("tpot", "ttft"))
    return (
        group,
        str(len(outcomes)),
        *describe_errors(tpot),
        f"{median(tpot[:, 2] / tpot[:, 0]):.2f}",
        *describe_errors(ttft),
        f"{median(ttft[:, 2] / ttft[:, 0]):.2f}",
    )


def describe_errors(ratios: np.ndarray) -> tuple[str, str, str]:
    """Return error, bias, and how many are inside."""
    error = np.percentile(np.abs(ratios[:, 1] - 1), [50, 90])
    inside = ((ratios[:, 0] <= 1) & (ratios[:, 2] >= 1)).mean()
    return (
        " / ".join(f"{100 * one:.0f}" for one in error) + " %",
        f"{100 * (np.median(ratios[:, 1]) - 1):+.0f} %",
        f"{100 * inside:.0f} %",
    )
