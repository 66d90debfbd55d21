"""Fit the constants of the exchanges of tokens between experts that DeepEP and serving engines bring along."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import least_squares

from tests.validation.studies.collectives.nccl_fit import NOISE, SPREAD
from tracekit.arrays import Floats, Ints

MACHINES = {
    "h100_sxm": "hopper", "h200_sxm": "hopper", "b200_sxm": "blackwell", "b300_sxm": "blackwell",
    "gb200": "grace_blackwell", "gb300": "grace_blackwell",
}  # fmt: skip
"""Measured machine -> the group whose factors it takes. A tray of Grace Blackwell has 4 GPUs."""
PHASES = ("dispatch", "combine")
NVLINK = "nvlink"
"""Library of TensorRT-LLM's own kernels over NVLink, measured on GB200s alone."""
SMS = 20
"""DeepEP's default; its kernels were also measured on other numbers of SMs."""
LOW_LATENCY = r"_ll$"
NOT_MODELLED = "deepep_v2"
"""Of one machine only."""
ITEM_BYTES = {"bfloat16": 2.0, "default": 2.0, "fp8": 1 + 1 / 32, "fp4": 0.5625, "nvfp4": 0.5625}
SHRINKAGE_ROWS = 200
"""How many independent rows each exchange counts as."""
EVALUATIONS = 60
LEVEL = 0.9


def load_tables(systems: Path) -> pl.DataFrame:
    """Load the exchanges inside one node: a row each, with ``exchange``, ``ranks``, ``bytes`` and ``measured_us``.

    ``bytes`` are those that a rank sends, its own among them: a token goes once to each rank that has one of its
    experts, in low-latency mode once to each expert.

    Args:
        systems: Folder of aiconfigurator's tables, ``systems/data`` of a checkout or of the unpacked wheel.
    """
    parts = [*map(_read_engine, sorted(systems.glob("*/comm/*/*/moe_a2a_perf.parquet")))]
    parts += map(_read_nvlink, sorted(systems.glob("*/comm/*/*/trtllm_alltoall_perf.parquet")))
    for mode in ("normal", "ll"):
        parts += map(_read_kernels, sorted(systems.glob(f"*/comm/*/*/wideep_deepep_{mode}_perf.parquet")))
    rows = pl.concat(parts).filter(pl.col("machine").is_in(list(MACHINES)), nodes=1)
    apart = pl.col("ranks") * (1 - (1 - 1 / pl.col("ranks")) ** pl.col("topk"))
    copies = pl.when(pl.col("exchange").str.contains("low_latency")).then("topk").otherwise(apart)
    return rows.select(
        "machine",
        "exchange",
        "ranks",
        "measured_us",
        group=pl.col("machine").replace_strict(MACHINES),
        bytes=pl.col("tokens") * pl.col("hidden") * pl.col("item_bytes") * copies,
    )


def _read_engine(path: Path) -> pl.DataFrame:
    """Read what an engine measured from call to return."""
    low_latency, combines = pl.col("comm_backend").str.contains(LOW_LATENCY), pl.col("phase") == "combine"
    # vLLM dispatches fp8 in low-latency mode; in the other mode, sums always come back in 16 bit.
    quantised = low_latency & ~combines & (pl.col("comm_dtype") == "default")
    item_bytes = (
        pl.when(quantised)
        .then(ITEM_BYTES["fp8"])
        .when(combines & ~low_latency)
        .then(ITEM_BYTES["bfloat16"])
        .otherwise(pl.col("comm_dtype").replace_strict(ITEM_BYTES, return_dtype=pl.Float64))
    )
    rows = pl.read_parquet(path).filter(~pl.col("comm_backend").str.contains(NOT_MODELLED))
    mode = pl.when(low_latency).then(pl.lit("low_latency")).otherwise(pl.lit("normal"))
    return rows.select(
        machine=pl.lit(path.parts[-5]),
        exchange=pl.concat_str(pl.col("framework").str.to_lowercase(), mode, "phase", separator="_"),
        nodes=pl.col("node_num").cast(pl.Int64),
        ranks=pl.col("ep_size").cast(pl.Float64),
        tokens=pl.col("num_tokens").cast(pl.Float64),
        hidden=pl.col("hidden_size").cast(pl.Float64),
        topk=pl.col("topk").cast(pl.Float64),
        item_bytes=item_bytes,
        measured_us=pl.col("latency").cast(pl.Float64),
    )


def _read_nvlink(path: Path) -> pl.DataFrame:
    """Read TensorRT-LLM's own kernels over NVLink, from 2 to 64 GPUs of a rack; sums come back in 16 bit."""
    side = pl.col("kernel_source").replace_strict({"NVLinkOneSided": "one_sided", "NVLinkTwoSided": "two_sided"})
    rows = pl.read_parquet(path).filter(pl.col("op_name").is_in([f"alltoall_{phase}" for phase in PHASES]))
    sent = pl.when(pl.col("op_name") == "alltoall_dispatch").then("moe_dtype").otherwise(pl.lit("bfloat16"))
    return rows.select(
        machine=pl.lit(path.parts[-5]),
        exchange=pl.concat_str(pl.lit(NVLINK), side, pl.col("op_name").str.strip_prefix("alltoall_"), separator="_"),
        nodes=pl.lit(1, pl.Int64),
        ranks=pl.col("moe_ep_size").cast(pl.Float64),
        tokens=pl.col("num_tokens").cast(pl.Float64),
        hidden=pl.col("hidden_size").cast(pl.Float64),
        topk=pl.col("topk").cast(pl.Float64),
        item_bytes=sent.replace_strict(ITEM_BYTES, return_dtype=pl.Float64),
        measured_us=pl.col("latency").cast(pl.Float64) * 1e3,
    )


def _read_kernels(path: Path) -> pl.DataFrame:
    """Read the times of DeepEP's kernels alone."""
    rows, low_latency = pl.read_parquet(path), "_ll_" in path.name
    if not low_latency:
        rows = rows.filter(dispatch_sms=SMS)
    mode = "low_latency" if low_latency else "normal"
    return pl.concat(
        rows.select(
            machine=pl.lit(path.parts[-5]),
            exchange=pl.lit(f"deepep_{mode}_{phase}"),
            nodes=pl.col("node_num").cast(pl.Int64),
            ranks=8.0 * pl.col("node_num"),
            tokens=pl.col("num_token").cast(pl.Float64),
            hidden=pl.col("hidden_size").cast(pl.Float64),
            topk=pl.col("num_topk").cast(pl.Float64),
            item_bytes=pl.lit(ITEM_BYTES["fp8" if low_latency and phase == "dispatch" else "bfloat16"]),
            measured_us=pl.col(f"{phase}_avg_t_us" if low_latency else f"{phase}_transmit_us").cast(pl.Float64),
        )
        for phase in PHASES
    )


@dataclass(frozen=True)
class _Problem:
    """Rows as arrays: exchange, library in a group of machines, bytes sent to others, and time."""

    exchanges: tuple[str, ...]
    groups: tuple[tuple[str, str], ...]
    exchange: Ints
    group: Ints
    sent_bytes: Floats
    measured_us: Floats

    def predict_us(self, vector: Floats) -> Floats:
        count, factors = len(self.exchanges), len(self.groups)
        base_us, gbps = np.exp(vector[:count]), np.exp(vector[count : 2 * count])
        latency, rate = np.exp(vector[2 * count : 2 * count + factors]), np.exp(vector[2 * count + factors :])
        transfer_us = self.sent_bytes / (gbps[self.exchange] * rate[self.group] * 1e3)
        return np.asarray(base_us[self.exchange] * latency[self.group] + transfer_us)

    def compute_residuals(self, vector: Floats) -> Floats:
        weight = np.sqrt(SHRINKAGE_ROWS / np.bincount(self.exchange))[self.exchange]
        missed = weight * np.log(self.predict_us(vector) / self.measured_us) / NOISE
        return np.concatenate([missed, vector[2 * len(self.exchanges) :] / SPREAD])


def _pose(rows: pl.DataFrame) -> _Problem:
    library = rows["exchange"].str.split("_").list.first()
    pairs = list(zip(library, rows["group"], strict=True))
    exchanges, groups = tuple(rows["exchange"].unique().sort()), tuple(sorted(set(pairs)))
    sent = rows["bytes"] * (1 - 1 / rows["ranks"])
    return _Problem(
        exchanges,
        groups,
        np.array([exchanges.index(name) for name in rows["exchange"]]),
        np.array([groups.index(pair) for pair in pairs]),
        sent.to_numpy(),
        rows["measured_us"].to_numpy(),
    )


def fit(rows: pl.DataFrame, base: Mapping[str, Any]) -> dict[str, Any]:
    """Fit constants to the rows, each library with factors for each group of machines, shrunken towards 1.

    Args:
        rows: As ``load_tables`` gives them.
        base: Tables with what is not fitted.
    """
    problem = _pose(rows)
    count, factors = len(problem.exchanges), len(problem.groups)
    start = np.concatenate([np.full(count, np.log(50.0)), np.full(count, np.log(200.0)), np.zeros(2 * factors)])
    found = np.exp(least_squares(problem.compute_residuals, start, loss="soft_l1", max_nfev=EVALUATIONS).x)
    tables = deepcopy(dict(base))
    known = base["exchanges"]["costs"]
    costs = {
        name: {
            "known": 1.0,
            "unseen": 1.0,
            **known.get(name, {}),
            "base_us": float(found[i]),
            "gbps": float(found[count + i]),
        }
        for i, name in enumerate(problem.exchanges)
    }
    scales: dict[str, Any] = deepcopy(dict(base["exchanges"]["machines"]))
    for entry in scales.values():
        entry["latency"], entry["bandwidth"] = {}, {}
    for i, (library, group) in enumerate(problem.groups):
        scales[group]["latency"][library] = float(found[2 * count + i])
        scales[group]["bandwidth"][library] = float(found[2 * count + factors + i])
    tables["exchanges"] = {**base["exchanges"], "costs": costs, "machines": scales}
    return tables


def compute_widths(rows: pl.DataFrame) -> dict[str, float]:
    """Return for each exchange the factor that holds 90 % of the errors; the rows have ``predicted_us``."""
    missed = (pl.col("predicted_us") / pl.col("measured_us")).log().abs()
    widths = rows.group_by("exchange", maintain_order=True).agg(missed.quantile(LEVEL).exp())
    return dict(widths.iter_rows())


def is_of_one_machine() -> pl.Expr:
    """Return whether rows are of exchanges that one machine was measured on."""
    return pl.col("exchange").str.starts_with(f"{NVLINK}_")
