"""Make tables of an archive of ``make on-gpu``: ``python -m tests.validation.on_gpu.tables OUT.tar.gz FOLDER``.

Writes heat.csv, kernels.csv, steps.csv, lookups.csv and machine.json; clocks and power are means over the time that
each thing was held. The committed ones are in predictors/training/measured, a folder for each GPU.
"""

import argparse
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

SETTLING_S = 0.1
"""Of the time held, before clocks and power count."""
MACHINE = ("gpu", "host", "software")


def main() -> None:
    """Read the archive and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.validation.on_gpu.tables", description="Make tables.")
    parser.add_argument("archive", type=Path, metavar="OUT.tar.gz")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(options.archive) as archive:
            archive.extractall(folder, filter="data")
        (source,) = Path(folder).iterdir()
        write_tables(source, options.folder)


def write_tables(source: Path, folder: Path) -> None:
    """Write the tables of an unpacked archive."""
    folder.mkdir(parents=True, exist_ok=True)
    clocks = read_clocks(source / "clocks.csv")
    tables = {
        "heat": tabulate_heat(read_json(source / "heat.json"), clocks),
        "kernels": tabulate_kernels(source, clocks),
        "steps": tabulate_steps(read_json(source / "steps.json") | read_json(source / "public_steps.json"), clocks),
        "lookups": tabulate_lookups(read_json(source / "lookups.json")),
    }
    for name, table in tables.items():
        table.with_columns(pl.selectors.float().round_sig_figs(5)).write_csv(folder / f"{name}.csv")
    machine = {key: value for key, value in read_json(source / "machine.json").items() if key in MACHINE}
    (folder / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text())


def read_clocks(path: Path) -> pl.DataFrame:
    """Read the log of clocks and power; rows without a clock are left out."""
    return pl.read_csv(path, infer_schema_length=None).filter(pl.col("sm_mhz").is_not_null())


def tabulate_heat(held: dict[str, Any], clocks: pl.DataFrame) -> pl.DataFrame:
    """Return the GEMM's rate by the seconds since it began, with the clocks then."""
    flops = 2 * held["m"] * held["n"] * held["k"]
    curve = pl.DataFrame(held["curve"], schema={"seconds": pl.Float64, "us": pl.Float64}, orient="row")
    since = clocks.select(pl.col("time_s") - held["begin_s"], "sm_mhz", "power_w", "celsius").sort("time_s")
    rates = curve.select("seconds", tflops=flops / pl.col("us") / 1e6)
    return rates.join_asof(since, left_on="seconds", right_on="time_s", strategy="nearest").drop("time_s")


def tabulate_kernels(source: Path, clocks: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels of the bench: measured cold and short, by the profiler, and held on the hot GPU."""
    cold = read_json(source / "samples" / "bench.json")["kernels"]
    hot = read_json(source / "kernels.json")["kernels"]
    rows = [
        {**short, "first_us": held["first_us"], "held_us": held["held_us"], **average_clocks(held, clocks)}
        for short, held in zip(cold, hot, strict=True)
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def tabulate_steps(steps: dict[str, dict[str, Any]], clocks: pl.DataFrame) -> pl.DataFrame:
    """Return the time, clocks and energy of each workload's step."""
    rows = [
        {
            "workload": name,
            "first_ms": held["first_us"] / 1e3,
            "held_ms": held["held_us"] / 1e3,
            **average_clocks(held, clocks),
            "joules": compute_energy_j(held, clocks) / held["repetitions"],
        }
        for name, held in steps.items()
    ]
    return pl.DataFrame(rows)


def average_clocks(held: dict[str, Any], clocks: pl.DataFrame) -> dict[str, float | None]:
    """Return the mean clock and power while something was held."""
    during = clocks.filter(pl.col("time_s").is_between(held["begin_s"] + SETTLING_S, held["end_s"]))
    return {name: during[name].mean() for name in ("sm_mhz", "power_w")}  # type: ignore[misc]


def compute_energy_j(held: dict[str, Any], clocks: pl.DataFrame) -> float:
    """Return the energy that the GPU used while something was held."""
    known = clocks.drop_nulls("energy_j")
    begin, end = np.interp([held["begin_s"], held["end_s"]], known["time_s"], known["energy_j"])
    return float(end - begin)


def tabulate_lookups(cases: list[dict[str, Any]]) -> pl.DataFrame:
    """Return a row for each kernel of each look-up; its name without template arguments."""
    shape = ("rows", "width", "bags", "pooling", "alpha", "unique")
    rows = [
        {**{name: case[name] for name in shape}, "phase": phase, "kernel": shorten(kernel), "us": us}
        for case in cases
        for phase in ("forward", "train")
        for kernel, us in case[f"{phase}_us"].items()
    ]
    table = pl.DataFrame(rows).group_by(*shape, "phase", "kernel", maintain_order=True).agg(pl.col("us").sum())
    return table.filter(~pl.col("kernel").str.starts_with("Memset"))


def shorten(kernel: str) -> str:
    """Return a kernel's name without return type, namespace in front, and template arguments."""
    for anonymous in ("(anonymous namespace)::", "<unnamed>::"):
        kernel = kernel.replace(anonymous, "")
    return kernel.removeprefix("void ").partition("<")[0].partition("(")[0]


if __name__ == "__main__":
    main()
