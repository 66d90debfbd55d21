"""`python -m predictors.training.power --data AICONFIGURATOR --zeus ZEUS`: fit what GPUs draw, and power limits.

Two sources know the power of kernels:

- aiconfigurator repeated kernels on three GPUs for up to a second each. NVML updates its reading ten times a second and
  a reading lags, so a kernel that was read once or twice looks almost idle: only means of many readings count.
- ``make on-gpu`` held kernels for longer and read the power of the moment (``measured/GPU/kernels.csv``).

Zeus measured whole training steps under power limits on four older GPUs.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import tomli_w
from scipy.optimize import least_squares  # type: ignore[import-untyped, unused-ignore]

from predictors.arrays import Floats
from predictors.columns import prepare_kernels
from predictors.power import POWER_FILE, PowerLaw
from predictors.training import aiconfigurator, traces
from predictors.training.datasets import find_slug
from predictors.weights_file import load_hardware

MIN_READINGS = 10
MAX_READINGS = 13
"""Readings of a run, which took up to a second: more are not told from a mean's decimals."""
MIN_US = 2.0
ROWS_PER_GROUP = 100
"""So many rows of one law on one GPU count, however many there are."""
IDLE = 0.19
"""Least power seen over the limit: 126 of 700 W (H200), 241 of 1,000 (B200), 220 of 1,200 (GB200)."""
ZEUS_TABLES = "examples/research_reproducibility/zeus_nsdi23/trace/summary_power_{gpu}.csv"
ZEUS_GPUS = {"a40": 300.0, "p100": 250.0, "rtx6000": 260.0, "v100": 250.0}
"""GPU in the names of Zeus's tables -> its power limit in watts."""
MIN_CAP = 0.6
"""Least limit over the draw without it that the interval of a time under a limit is for."""
UNMEASURED_FACTOR = 1.5
"""Of the interval on an architecture whose draw nobody measured here. Without its architecture, a GPU's errors are as
without itself, but the two that were measured, Hopper and Blackwell, resemble each other more than others."""
START = PowerLaw(IDLE, 0.4, 1.0, 0.4, 0.3, 0.25, 0.25, (), 3.0, 0.8, 0.1)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m predictors.training.power", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="checkout of github.com/ai-dynamo/aiconfigurator")
    parser.add_argument("--zeus", type=Path, required=True, help="checkout of github.com/ml-energy/zeus")
    parser.add_argument("--out", type=Path, default=POWER_FILE, help="file to write (default: the one that ships)")
    options = parser.parse_args()
    draws, limited = load_draws(options.data), load_limited_steps(options.zeus)
    law = fit_cap(fit_draw(draws, START), limited)
    apart = pl.concat([score_draw(draws, "gpu"), score_draw(draws, "architecture")])
    caps = score_cap(limited, law)
    law = replace(
        law,
        half_width=find_half_width(apart["log_error"]),
        half_width_elsewhere=UNMEASURED_FACTOR * find_half_width(apart["log_error"]),
        architectures=tuple(sorted(draws["architecture"].unique())),
        cap_half_width=find_half_width(caps.filter(pl.col("cap") >= MIN_CAP * pl.col("draw"))["log_error"]),
    )
    options.out.write_text(format_file(law, apart, caps), encoding="utf-8")


def load_draws(checkout: Path) -> pl.DataFrame:
    """Load kernels with their power.

    Returns:
        `gpu` (a slug), `architecture`, `source`, `law`, `time_us`, `compute` and `memory` (fractions of the peaks) and
        `draw` (power over the board's limit).
    """
    more: aiconfigurator.ColumnExpressions = {"power_w": pl.col("power").cast(pl.Float64)}
    frames = [frame.filter(pl.col("power_w") > 0) for frame in aiconfigurator.load(checkout, more)]
    long = pl.concat(frames, how="diagonal_relaxed").filter(count_readings(pl.col("power_w")) >= MIN_READINGS)
    held = [_load_held(folder) for folder in sorted((Path(traces.__file__).parent / "measured").iterdir())]
    rows = pl.concat([long.with_columns(source=pl.lit("aiconfigurator")), *held], how="diagonal_relaxed")
    slugs = {name: find_slug(name) for name in rows["gpu"].unique()}
    rows = rows.with_columns(gpu=pl.col("gpu").replace_strict(slugs, return_dtype=pl.String))
    rows = rows.filter(pl.col("gpu").is_not_null(), pl.col("latency_us") >= MIN_US)
    return pl.concat([_add_utilizations(part) for part in rows.partition_by("gpu", maintain_order=True)])


def _load_held(folder: Path) -> pl.DataFrame:
    table = pl.read_csv(folder / "kernels.csv", infer_schema_length=None)
    timings = ("measured_us", "spread", "profiled_us", "first_us", "held_us", "sm_mhz")
    return table.with_columns(latency_us="held_us", gpu=pl.lit(folder.name), source=pl.lit("make on-gpu")).drop(timings)


def _add_utilizations(rows: pl.DataFrame) -> pl.DataFrame:
    gpu = load_hardware(rows["gpu"][0])
    own = rows.drop("gpu", "source", "power_w", "latency_us")
    table = prepare_kernels(own, gpu).hstack(rows.select("gpu", "source", "power_w", time_us="latency_us"))
    rates = {name: gpu.get_tflops(name) for name in table["dtype"].unique().drop_nulls()}
    rate = pl.col("dtype").replace_strict(rates, default=gpu.get_tflops(None), return_dtype=pl.Float64)
    return table.filter(pl.col("law").is_not_null()).select(
        "gpu",
        "source",
        "law",
        "time_us",
        architecture=pl.lit(gpu.architecture),
        compute=pl.col("work_flops") / (rate * 1e6) / pl.col("time_us"),
        memory=pl.col("work_bytes") / (gpu.bandwidth_gbps * 1e3) / pl.col("time_us"),
        draw=pl.col("power_w") / gpu.gpu.tdp_w,
    )


def count_readings(watts: pl.Expr) -> pl.Expr:
    """Count the readings in milliwatts of which a power is the mean: the fewest whose sum is whole.

    For example 390.8475 W is a mean of 2 or of 4 readings (781.695 W): 2.
    """
    whole = [((watts * 1e3 * n) - (watts * 1e3 * n).round()).abs() < 2e-3 for n in range(1, MAX_READINGS + 1)]
    return pl.coalesce(pl.when(fits).then(n) for n, fits in enumerate(whole, 1)).fill_null(MAX_READINGS + 1)


def fit_draw(rows: pl.DataFrame, start: PowerLaw) -> PowerLaw:
    """Fit what running, arithmetic and traffic draw; each law on each GPU counts alike."""
    time_us, compute, memory, draw = (rows[name].to_numpy() for name in ("time_us", "compute", "memory", "draw"))
    count = rows.select(pl.len().over("gpu", "source", "law"))["len"].to_numpy()
    weight = np.sqrt(np.minimum(1.0, ROWS_PER_GROUP / count))

    def build(x: Floats) -> PowerLaw:
        return replace(start, running=float(x[0]), compute=float(x[1]), memory=float(x[2]))

    def compute_residuals(x: Floats) -> Floats:
        return np.asarray(weight * (np.log(build(x).compute_draw(compute, memory, time_us)) - np.log(draw)))

    first = [start.running, start.compute, start.memory]
    law = build(least_squares(compute_residuals, first, loss="soft_l1", f_scale=0.1, bounds=(0.0, 3.0)).x)
    work = law.compute * np.minimum(compute, 1.0) + law.memory * np.minimum(memory, 1.0)
    return replace(law, unknown_work=float(np.average(work, weights=weight**2)))


def score_draw(rows: pl.DataFrame, left_out: str) -> pl.DataFrame:
    """Score the energy of all kernels of one law on a GPU by fits without that GPU, or without its architecture.

    Args:
        rows: From ``load_draws``.
        left_out: 'gpu' or 'architecture'.

    Returns:
        `left_out`, `gpu`, `source`, `law`, `kernels`, `log_error` of their summed energy and `median`, the median
        absolute error of a kernel's power as a logarithm.
    """
    scored = []
    for one in rows[left_out].unique(maintain_order=True):
        law = fit_draw(rows.filter(pl.col(left_out) != one), START)
        part = rows.filter(pl.col(left_out) == one)
        drawn = law.compute_draw(*(part[name].to_numpy() for name in ("compute", "memory", "time_us")))
        scored.append(part.with_columns(drawn=pl.Series(drawn)))
    energy = (pl.col(name) * pl.col("time_us") for name in ("drawn", "draw"))
    predicted, measured = (one.sum() for one in energy)
    return (
        pl.concat(scored)
        .group_by("gpu", "source", "law", maintain_order=True)
        .agg(
            kernels=pl.len(),
            log_error=(predicted / measured).log(),
            median=(pl.col("drawn") / pl.col("draw")).log().abs().median(),
        )
        .select(pl.lit(left_out).alias("left_out"), pl.all())
    )


def load_limited_steps(checkout: Path) -> pl.DataFrame:
    """Load Zeus's training steps whose power a limit lowers.

    Returns:
        `gpu`, `network`, `cap` and `draw` (the limit and the draw without one, over the board's limit) and `slowdown`.
    """
    return pl.concat([_load_limited_steps(checkout / ZEUS_TABLES.format(gpu=gpu), gpu) for gpu in ZEUS_GPUS])


def _load_limited_steps(path: Path, gpu: str) -> pl.DataFrame:
    table, job = pl.read_csv(path), ("dataset", "network", "batch_size", "optimizer")
    free = table.filter(pl.col("power_limit") == pl.col("power_limit").max().over(job)).group_by(job)
    alone = free.agg(pl.col("time_per_epoch").first().alias("free_time"), pl.col("average_power").first().alias("free"))
    joined = table.join(alone, on=job).filter(pl.col("power_limit") < pl.col("free"), pl.col("free_time") > 1)
    return joined.select(
        "network",
        gpu=pl.lit(gpu),
        cap=pl.col("power_limit") / ZEUS_GPUS[gpu],
        draw=pl.col("free") / ZEUS_GPUS[gpu],
        slowdown=pl.col("time_per_epoch") / pl.col("free_time"),
    )


def fit_cap(law: PowerLaw, steps: pl.DataFrame) -> PowerLaw:
    """Fit how the draw grows with the clock."""
    cap, draw, slowdown = (steps[name].to_numpy() for name in ("cap", "draw", "slowdown"))

    def build(x: Floats) -> PowerLaw:
        return replace(law, clock_exponent=float(x[0]), clock_knee=float(x[1]))

    def compute_residuals(x: Floats) -> Floats:
        return np.asarray(np.log(_slow(build(x), draw, cap)) - np.log(slowdown))

    first = [law.clock_exponent, law.clock_knee]
    return build(
        least_squares(compute_residuals, first, loss="soft_l1", f_scale=0.03, bounds=([1.0, 0.3], [8.0, 0.99])).x
    )


def score_cap(steps: pl.DataFrame, law: PowerLaw) -> pl.DataFrame:
    """Add `log_error`: that of the time under each limit, by fits without the step's GPU."""
    scored = []
    for gpu in ZEUS_GPUS:
        part, fitted = steps.filter(pl.col("gpu") == gpu), fit_cap(law, steps.filter(pl.col("gpu") != gpu))
        slowdown = _slow(fitted, part["draw"].to_numpy(), part["cap"].to_numpy())
        scored.append(part.with_columns(log_error=(pl.Series(slowdown) / part["slowdown"]).log()))
    return pl.concat(scored)


def _slow(law: PowerLaw, draw: Floats, cap: Floats) -> Floats:
    return np.array([law.compute_slowdown(one, limit) for one, limit in zip(draw[:, None], cap, strict=True)])[:, 0]


def find_half_width(log_errors: pl.Series) -> float:
    """Return the half-width that holds 90 % of errors."""
    return float(log_errors.abs().quantile(0.9) or 0.0)


def format_file(law: PowerLaw, draws: pl.DataFrame, caps: pl.DataFrame) -> str:
    """Format the law, and how far it was off what was left out."""
    values = {name: list(value) if isinstance(value, tuple) else round(value, 3) for name, value in vars(law).items()}
    scored = draws.filter(pl.col("left_out") == "gpu").group_by("gpu", "source", maintain_order=True)
    errors = scored.agg(pl.col("kernels").sum(), pl.col("log_error").median(), pl.col("median").mean())
    limited = caps.filter(pl.col("cap") >= MIN_CAP * pl.col("draw")).group_by("gpu", maintain_order=True)
    steps = limited.agg(steps=pl.len(), median=pl.col("log_error").abs().median())
    left_out = {
        "draw": [_round(row) for row in errors.iter_rows(named=True)],
        "cap": [_round(row) for row in steps.iter_rows(named=True)],
    }
    heading = (
        "# Written by `python -m predictors.training.power`. Errors are logarithms, each GPU left out: of a law's\n"
        "# summed energy (`log_error`, the median law), of a kernel's power (`median`), and under a limit of a step's\n"
        "# time.\n"
    )
    return heading + tomli_w.dumps({"law": values, "left_out": left_out})


def _round(row: dict[str, object]) -> dict[str, object]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}


if __name__ == "__main__":
    main()
