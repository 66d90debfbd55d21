"""Fits the constants of all-reduces that serving engines bring along, and says how far off they are.

python -m tests.validation.studies.custom_reduces --data FOLDER [--checkout FOLDER] [--write]

vLLM's, SGLang's and TensorRT-LLM's, replayed in CUDA graphs. The constants of NCCL, to which they leave large messages,
stay as ``collectives.py`` fitted them.
"""

import argparse
import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import polars as pl

from tests.validation.studies.collectives import PCIE, RANGES, SIBLINGS, SPREAD, Knob, errors, model, search, write
from tracekit.comm.constants import CONSTANTS_FILE

LARGEST_BYTES = 2**23
"""vLLM and SGLang give larger messages to NCCL."""

ITEM_BYTES = 2

STARTS = {
    "one_shot": {"base_us": 5.0, "hop_us": 0.2, "cost": 1.5, "pipeline": 0.1},
    "two_shot": {"base_us": 8.0, "hop_us": 0.2, "cost": 1.5, "pipeline": 0.1},
}


def load(data: Path) -> pl.DataFrame:
    """Median latency over engines and versions, as ``evaluate_collectives.load`` gives NCCL's.

    Args:
        data: Folder that holds aiconfigurator/custom_allreduce.parquet; its README says what the columns mean.
    """
    rows = pl.read_parquet(data / "aiconfigurator" / "custom_allreduce.parquet")
    columns = {"machine": "system", "ranks": "num_gpus", "engine": pl.col("impl").cast(pl.String)}
    return _medians(rows.with_columns(**columns, measured_us=pl.col("latency_us").cast(pl.Float64)))


def load_siblings(checkout: Path) -> pl.DataFrame:
    """The same from the public tables, of machines of a generation that is fitted, which themselves aren't.

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
    return _medians(rows)


def _medians(rows: pl.DataFrame) -> pl.DataFrame:
    in_graphs = ~pl.col("engine").str.contains("eager")
    usable = ~pl.col("system").is_in(PCIE) | (pl.col("ranks") == 2)
    keys = ["machine", "system", "ranks", "bytes"]
    medians = rows.filter(in_graphs & usable).group_by(keys).agg(pl.col("measured_us").median()).sort(keys)
    return medians.with_columns(collective=pl.lit("all_reduce"), dtype=pl.lit("half"), custom=pl.lit(value=True))


def knobs(systems: list[str]) -> Iterator[Knob]:
    """What is fitted.

    Args:
        systems: Machines among the rows.
    """
    for name, starts in STARTS.items():
        for key, start in starts.items():
            low = 0.01 if key in ("hop_us", "pipeline") else RANGES[key][0]
            yield Knob(("protocols", name, key), start, low, RANGES[key][1])
    for name in systems:
        yield Knob(("systems", name, "custom"), 1.0, 0.3, 3.0, SPREAD)


def fit(rows: pl.DataFrame, base: Mapping[str, Any]) -> dict[str, Any]:
    """Constants that fit the rows best; machines without rows keep a factor of 1.

    Args:
        rows: As ``load`` gives them.
        base: Tables with what is not fitted.
    """
    tables = deepcopy(dict(base))
    for entry in tables["systems"].values():
        entry["custom"] = 1.0
    search(rows.filter(pl.col("bytes") <= LARGEST_BYTES), tables, [*knobs(rows["system"].unique().sort().to_list())])
    return tables


def main() -> None:
    """Fits, prints the errors, of machines left out too, and writes the constants if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with aiconfigurator/custom_allreduce.parquet")
    parser.add_argument("--checkout", type=Path, help="of aiconfigurator: tests on siblings too")
    parser.add_argument("--write", action="store_true", help=f"write the constants to {CONSTANTS_FILE}")
    options = parser.parse_args()
    rows, base = load(options.data), tomllib.loads(CONSTANTS_FILE.read_text(encoding="utf-8"))
    tables = fit(rows, base)
    own = rows.filter(pl.col("bytes") <= LARGEST_BYTES)
    unseen = [
        part.with_columns(predicted_us=model(part, fit(own.filter(pl.col("machine") != name), base)))
        for (name,), part in own.partition_by("machine", as_dict=True).items()
    ]
    pl.Config.set_float_precision(1)
    pl.Config.set_tbl_formatting("ASCII_MARKDOWN")
    pl.Config.set_tbl_hide_dataframe_shape(True).set_tbl_hide_column_data_types(True)
    print("In the fit", errors(own.with_columns(predicted_us=model(own, tables))), sep="\n")
    print("Machine left out", errors(pl.concat(unseen)), sep="\n")
    print("NCCL's instead", errors(own.with_columns(predicted_us=model(own.drop("custom"), tables))), sep="\n")
    if options.checkout:
        siblings = load_siblings(options.checkout).filter(pl.col("bytes") <= LARGEST_BYTES)
        print("Siblings, in no fit", errors(siblings.with_columns(predicted_us=model(siblings, tables))), sep="\n")
    if options.write:
        write(tables, CONSTANTS_FILE)


if __name__ == "__main__":
    main()
