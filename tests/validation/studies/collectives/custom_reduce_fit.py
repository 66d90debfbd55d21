"""Fit the constants of all-reduces that serving engines bring along: vLLM's, SGLang's, TensorRT-LLM's in CUDA graphs.

The constants of NCCL, to which they leave large messages, stay as ``nccl_fit`` fitted them.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import polars as pl

from tests.validation.studies.collectives.nccl_fit import GBPS, PCIE, RANGES, SIBLINGS, SPREAD, FittedConstant, search

MAX_BYTES = 2**23
"""vLLM and SGLang give larger messages to NCCL."""

ITEM_BYTES = 2

STARTS = {
    "one_shot": {"base_us": 5.0, "hop_us": 0.2, "cost": 1.5, "pipeline": 0.1},
    "two_shot": {"base_us": 8.0, "hop_us": 0.2, "cost": 1.5, "pipeline": 0.1},
}


def load_tables(data: Path) -> pl.DataFrame:
    """Load median latencies over engines and versions, as ``nccl_fit.load_tables`` loads NCCL's.

    Args:
        data: Folder that holds aiconfigurator/custom_allreduce.parquet; its README says what the columns mean.
    """
    rows = pl.read_parquet(data / "aiconfigurator" / "custom_allreduce.parquet")
    rows = rows.with_columns(pl.col("system").cast(pl.String)).filter(pl.col("system").is_in(list(GBPS)))
    named = rows.with_columns(
        machine="system",
        ranks="num_gpus",
        engine=pl.col("impl").cast(pl.String),
        measured_us=pl.col("latency_us").cast(pl.Float64),
    )
    return _compute_medians(named)


def load_siblings(checkout: Path) -> pl.DataFrame:
    """Load the same from the public tables, of machines of a generation that is fitted, which themselves aren't.

    Args:
        checkout: Of github.com/ai-dynamo/aiconfigurator.
    """
    parts = []
    paths = sorted(checkout.rglob("systems/data/*/comm/*/*/custom_allreduce_perf.parquet"))
    for path in (path for path in paths if path.parts[-5] in SIBLINGS):
        rows = pl.read_parquet(path)
        engine = next(name for name in ("backend", "implementation") if name in rows.columns)
        parts.append(
            rows.select(
                "num_gpus",
                "message_size",
                machine=pl.lit(path.parts[-5]),
                engine=engine,
                measured_us=1e3 * pl.col("latency"),
            )
        )
    size = ITEM_BYTES * pl.col("message_size")
    rows = pl.concat(parts).with_columns(system=pl.col("machine").replace(SIBLINGS), ranks="num_gpus", bytes=size)
    return _compute_medians(rows)


def _compute_medians(rows: pl.DataFrame) -> pl.DataFrame:
    in_graphs = ~pl.col("engine").str.contains("eager")
    usable = ~pl.col("system").is_in(PCIE) | (pl.col("ranks") == 2)
    keys = ["machine", "system", "ranks", "bytes"]
    medians = rows.filter(in_graphs & usable).group_by(keys).agg(pl.col("measured_us").median()).sort(keys)
    return medians.with_columns(collective=pl.lit("all_reduce"), dtype=pl.lit("half"), custom=pl.lit(value=True))


def list_constants(systems: list[str]) -> Iterator[FittedConstant]:
    """Yield what is fitted.

    Args:
        systems: Machines among the rows.
    """
    for name, starts in STARTS.items():
        for key, start in starts.items():
            low = 0.01 if key in ("hop_us", "pipeline") else RANGES[key][0]
            yield FittedConstant(("protocols", name, key), start, low, RANGES[key][1])
    for name in systems:
        yield FittedConstant(("systems", name, "custom"), 1.0, 0.3, 3.0, SPREAD)


def fit(rows: pl.DataFrame, base: Mapping[str, Any]) -> dict[str, Any]:
    """Fit constants to the rows; machines without rows keep a factor of 1.

    Args:
        rows: As ``load_tables`` gives them.
        base: Tables with what is not fitted.
    """
    tables = deepcopy(dict(base))
    for entry in tables["systems"].values():
        entry["custom"] = 1.0
    search(
        rows.filter(pl.col("bytes") <= MAX_BYTES), tables, [*list_constants(rows["system"].unique().sort().to_list())]
    )
    return tables
