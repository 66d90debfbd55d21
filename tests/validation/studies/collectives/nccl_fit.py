"""Fit the constants of the collective model to measured NCCL times.

Least squares on the logarithm of the time, with a loss that forgives outliers. Every machine has a factor on its
latency and one on its bandwidth, both shrunken towards 1; a machine that is left out has 1.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import tomli_w
from scipy.optimize import least_squares

from predictors import load_gpu
from tracekit.arrays import Floats
from tracekit.comm.calibrate import fit_calibration
from tracekit.comm.collective_calls import CollectiveCalls, CollectiveLinks
from tracekit.comm.constants import CollectiveConstants, parse_constants
from tracekit.comm.law import predict_times
from tracekit.comm.predict import INTERVAL_SDS, compute_copy_gbps

RINGS = ("all_reduce", "all_gather", "reduce_scatter")
PCIE = ("l40s",)
GBPS = {"a100_sxm": 300.0, "h100_sxm": 450.0, "b200_sxm": 900.0, "l40s": 31.5}
"""Links in one direction, as in predictors/gpus."""

SIBLINGS = {"h200_sxm": "h100_sxm", "b300_sxm": "b200_sxm", "gb200": "b200_sxm", "gb300": "b200_sxm"}
"""Machines of a checkout by the one of their generation that is fitted; their links are as fast."""

SYSTEMS = {**{name: name for name in GBPS}, **SIBLINGS}

ITEM_BYTES = {"half": 2, "int8": 1}

NOISE = 0.1
"""Log error that a row is expected to have, against which ``SPREAD`` shrinks."""

SPREAD = 0.25
"""Log spread of the machines' factors: of small-message latency, in predictor_study_modern.md, section 7."""

EVALUATIONS = 40
LEVEL = 0.9
LARGE_BYTES = 2**20


@dataclass(frozen=True)
class FittedConstant:
    """A constant that the fit may change.

    Attributes:
        path: Where it stands in the tables.
        start: Where the search begins.
        low: Its least value.
        high: Its greatest value.
        spread: Of its logarithm about 0, if it is a factor that is shrunken towards 1.
    """

    path: tuple[str, str, str]
    start: float
    low: float
    high: float
    spread: float | None = None


PROTOCOL_STARTS = {
    "LL": {"base_us": 5.0, "hop_us": 1.0, "cost": 3.0, "pipeline": 0.1, "growth": 1.1},
    "LL128": {"base_us": 10.0, "hop_us": 1.5, "cost": 1.2, "pipeline": 0.3},
    "Simple": {"base_us": 10.0, "hop_us": 5.0, "cost": 1.1, "pipeline": 0.5},
    "direct_LL": {"base_us": 7.0, "hop_us": 1.0, "cost": 2.0, "pipeline": 0.1, "growth": 1.1},
    "direct_Simple": {"base_us": 15.0, "cost": 1.1, "pipeline": 0.5},
    "NVLS": {"base_us": 25.0, "cost": 1.5, "pipeline": 1.0},
}
"""Round numbers; a fit that began where another ended would know what that one saw."""

RANGES = {
    "base_us": (1.0, 100.0),
    "hop_us": (0.01, 40.0),
    "cost": (1.0, 300.0),
    "pipeline": (1e-3, 2.0),
    "growth": (1.0, 2.0),
}


def list_constants(systems: list[str]) -> list[FittedConstant]:
    """Return what is fitted; the factors of ``systems`` only.

    Args:
        systems: Machines among the rows.
    """
    return [*_list_protocol_constants(), *_list_copy_constants(), *_list_system_constants(systems)]


def _list_protocol_constants() -> Iterator[FittedConstant]:
    for name, starts in PROTOCOL_STARTS.items():
        yield from (FittedConstant(("protocols", name, key), start, *RANGES[key]) for key, start in starts.items())


def _list_copy_constants() -> Iterator[FittedConstant]:
    yield from (FittedConstant(("own", name, ""), 0.4, 1e-3, 1.0) for name in RINGS)
    yield FittedConstant(("copies", "bytes_per_clock", ""), 2.0, 0.2, 20.0)


def _list_system_constants(systems: list[str]) -> Iterator[FittedConstant]:
    for name in systems:
        yield FittedConstant(("systems", name, "latency"), 1.0, 0.3, 3.0, SPREAD)
        yield FittedConstant(("systems", name, "hop"), 1.0, 0.3, 3.0, SPREAD)
        if name not in PCIE:
            yield FittedConstant(("systems", name, "bandwidth"), 1.0, 0.3, 3.0, SPREAD)
    if set(systems) & set(PCIE):
        yield FittedConstant(("pcie", "cost", ""), 1.1, 0.5, 3.0)


def load_tables(data: Path) -> pl.DataFrame:
    """Load median latencies over versions and repeats: a row per machine, collective, type, ranks and size.

    ``machine`` is the one measured, ``system`` that of its generation, whose constants it takes.

    Args:
        data: Folder that holds aiconfigurator/nccl.parquet; its README says what the columns mean.
    """
    rows = pl.read_parquet(data / "aiconfigurator" / "nccl.parquet").with_columns(pl.col("system").cast(pl.String))
    named = rows.filter(pl.col("system").is_in(list(GBPS))).with_columns(
        collective=pl.col("op_name").cast(pl.String).replace("alltoall", "all_to_all"),
        dtype=pl.col("dtype").cast(pl.String),
        ranks=pl.col("num_gpus"),
    )
    return compute_medians(named.with_columns(machine="system"), pl.col("latency_us"))


def load_checkout(checkout: Path, systems: Mapping[str, str] = SYSTEMS) -> pl.DataFrame:
    """Load the same from the public tables.

    Args:
        checkout: Of github.com/ai-dynamo/aiconfigurator.
        systems: Machine -> the one whose constants it takes.
    """
    columns = ("machine", "op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
    parts = []
    for path in sorted(checkout.rglob("systems/data/*/comm/nccl/*/nccl_perf.parquet")):
        machine = path.parts[-5]
        if machine in systems:
            rows = pl.read_parquet(path).with_columns(machine=pl.lit(machine))
            parts.append(rows.select(pl.col(columns).cast(pl.String)))
    rows = pl.concat(parts).with_columns(pl.col("num_gpus", "message_size").cast(pl.Int64))
    named = rows.with_columns(
        system=pl.col("machine").replace(systems),
        collective=pl.col("op_name").replace("alltoall", "all_to_all"),
        dtype="nccl_dtype",
        ranks="num_gpus",
        bytes=pl.col("message_size") * pl.col("nccl_dtype").replace_strict(ITEM_BYTES, return_dtype=pl.Int64),
    )
    linked = ~pl.col("machine").is_in(PCIE) | (pl.col("ranks") == 2)
    return compute_medians(named.filter(linked), pl.col("latency").cast(pl.Float64) * 1e3)


def compute_medians(rows: pl.DataFrame, latency_us: pl.Expr) -> pl.DataFrame:
    keys = ["machine", "system", "collective", "dtype", "ranks", "bytes"]
    return rows.group_by(keys).agg(measured_us=latency_us.cast(pl.Float64).median()).sort(keys)


def predict_us(rows: pl.DataFrame, tables: Mapping[str, Any]) -> Floats:
    """Predict the microseconds of each row, with the constants of ``tables``."""
    constants = parse_constants(tables)
    return _predict_by_collective(rows, lambda part: predict_times(*build_calls(part, constants), constants)[0])


def _predict_by_collective(rows: pl.DataFrame, predicted: Callable[[pl.DataFrame], Floats]) -> Floats:
    """Call a prediction with the rows of each machine and collective, and put its results in order."""
    result = np.empty(rows.height)
    for part in rows.with_row_index("row").partition_by("system", "collective"):
        result[part["row"].to_numpy()] = predicted(part)
    return result


def build_calls(part: pl.DataFrame, constants: CollectiveConstants) -> tuple[CollectiveCalls, CollectiveLinks]:
    """Return one collective's rows on one machine as calls, and the links that they use."""
    ranks = part["ranks"].to_numpy().astype(float)
    adds = (part["dtype"] != "int8").to_numpy()
    sizes, custom = part["bytes"].to_numpy().astype(float), "custom" in part.columns
    calls = CollectiveCalls(part["collective"][0], sizes, ranks, np.ones_like(ranks), adds, custom)
    return calls, _build_links(part["system"][0], part.height, constants)


def _build_links(system: str, rows: int, constants: CollectiveConstants) -> CollectiveLinks:
    gpu = load_gpu(system)
    return CollectiveLinks(
        gbps=np.full(rows, GBPS[system]),
        copy_gbps=compute_copy_gbps(gpu, constants),
        network_gbps=1.0,
        network="ib",
        is_pcie=np.full(rows, system in PCIE),
        has_nvls=system in ("h100_sxm", "b200_sxm"),
        compute_capability_major=int(gpu.compute_capability.split(".")[0]),
        system=constants.systems[system],
    )


def fit(rows: pl.DataFrame, base: Mapping[str, Any], evaluations: int = EVALUATIONS) -> dict[str, Any]:
    """Fit constants to the rows; machines without rows keep their factors at 1.

    Args:
        rows: As ``load_tables`` gives them.
        base: Tables with what is not fitted.
        evaluations: At most so many steps of the search.
    """
    present = rows["system"].unique().sort().to_list()
    turned = list_constants(present)
    tables = deepcopy(dict(base))
    for entry in tables["systems"].values():
        entry |= {"latency": 1.0, "hop": 1.0, "bandwidth": 1.0}
    search(rows, tables, turned, evaluations)
    _centre_factors(tables, present)
    return tables


def search(
    rows: pl.DataFrame, tables: dict[str, Any], turned: list[FittedConstant], evaluations: int = EVALUATIONS
) -> None:
    """Change constants of ``tables`` until they fit the rows best.

    Args:
        rows: As ``load_tables`` gives them.
        tables: Of constants.
        turned: What may change.
        evaluations: At most so many steps.
    """
    logs = np.log(rows["measured_us"].to_numpy())

    def residuals(x: Floats) -> Floats:
        _set_constants(tables, turned, np.exp(x))
        errors = (np.log(predict_us(rows, tables)) - logs) / NOISE
        priors = [value / knob.spread for value, knob in zip(x, turned, strict=True) if knob.spread]
        return np.concatenate([errors, priors])

    first, low, high = np.log([[knob.start, knob.low, knob.high] for knob in turned]).T
    solution = least_squares(residuals, first, bounds=(low, high), loss="soft_l1", max_nfev=evaluations, diff_step=1e-3)
    _set_constants(tables, turned, np.exp(solution.x))


def _centre_factors(tables: dict[str, Any], present: list[str]) -> None:
    """Move the machines' mean factors into the protocols, where the search is flat: no time changes by it."""
    linked = [name for name in present if name not in PCIE]
    machines = tables["systems"]
    means = {
        key: float(np.exp(np.mean([np.log(machines[name][key]) for name in names])))
        for key, names in (("latency", present), ("hop", present), ("bandwidth", linked))
    }
    for name in present:
        machines[name]["latency"] /= means["latency"]
        machines[name]["hop"] /= means["hop"]
    for name in linked:
        machines[name]["bandwidth"] /= means["bandwidth"]
    for name in PROTOCOL_STARTS:
        tables["protocols"][name]["base_us"] *= means["latency"]
        tables["protocols"][name]["hop_us"] *= means["latency"] * means["hop"]
        tables["protocols"][name]["cost"] /= means["bandwidth"]
    tables["pcie"]["cost"] *= means["bandwidth"]


def _set_constants(tables: dict[str, Any], turned: list[FittedConstant], values: Floats) -> None:
    for knob, value in zip(turned, values, strict=True):
        section, name, key = knob.path
        if key:
            tables[section][name][key] = float(value)
        else:
            tables[section][name] = float(value)


def predict_left_out(rows: pl.DataFrame, base: Mapping[str, Any], by: list[str]) -> pl.DataFrame:
    """Add ``predicted_us`` to ``rows`` by fits that saw none of the rows with the same ``by``.

    Where whole machines are left out, ``calibrated_us`` too: with two all-reduces of the machine.

    Args:
        rows: As ``load_tables`` gives them.
        base: Tables with what is not fitted.
        by: Columns of the group that is left out.
    """
    parts = []
    for part in rows.partition_by(by):
        tables = fit(rows.join(part.select(by).unique(), on=by, how="anti"), base)
        predicted = part.with_columns(predicted_us=predict_us(part, tables))
        if by == ["machine"]:
            predicted = predicted.with_columns(**predict_calibrated(part, tables, known=False))
        parts.append(predicted)
    return pl.concat(parts)


def predict_calibrated(part: pl.DataFrame, tables: Mapping[str, Any], *, known: bool) -> dict[str, Floats]:
    """Predict a machine's rows as ``calibrated_us``, and their ``calibrated_width`` as a factor, from two all-reduces.

    1 KiB on two of its GPUs and 512 MiB on all: on two GPUs hardly more than the launch is measured, which is what
    machines differ most in.
    """
    constants = parse_constants(tables)
    ranks = pl.when(pl.col("bytes") == 2**10).then(2).otherwise(part["ranks"].max())
    sizes = pl.col("bytes").is_in([2**10, 2**29]) & (pl.col("ranks") == ranks)
    points = part.filter(sizes & (pl.col("collective") == "all_reduce") & (pl.col("dtype") == "half"))
    learned = fit_calibration(
        [build_calls(points, constants)], constants, points["measured_us"].to_numpy(), known=known
    )
    time_us = _predict_by_collective(
        part, lambda rows: learned.predict_times(*build_calls(rows, constants), constants)[0]
    )
    sd = _predict_by_collective(part, lambda rows: learned.predict_times(*build_calls(rows, constants), constants)[2])
    return {"calibrated_us": time_us, "calibrated_width": np.exp(INTERVAL_SDS * sd)}


def compute_errors(predicted: pl.DataFrame) -> pl.DataFrame:
    """Return the median and 90th percentile of |error| in percent by machine, over all sizes and above 1 MB."""
    apart = (pl.col("predicted_us") / pl.col("measured_us") - 1).abs() * 100
    large = pl.col("bytes") > LARGE_BYTES
    columns = {
        "all": apart.median(),
        "all_p90": apart.quantile(LEVEL),
        "large": apart.filter(large).median(),
        "large_p90": apart.filter(large).quantile(LEVEL),
    }
    nvlink = predicted.filter(~pl.col("system").is_in(PCIE)).with_columns(machine=pl.lit("NVLink together"))
    both = pl.concat([predicted, nvlink])
    return both.group_by("machine", maintain_order=True).agg(**columns, rows=pl.len())


def compute_half_width(predicted: pl.DataFrame) -> float:
    """Return the factor that holds 90 % of the held-out rows on either side."""
    logs = (predicted["predicted_us"].log() - predicted["measured_us"].log()).abs()
    return float(np.exp(np.quantile(logs.to_numpy(), LEVEL)))


def write_constants(tables: Mapping[str, Any], path: Path) -> None:
    """Write tables as TOML, with four digits of each fitted figure."""
    path.write_text(tomli_w.dumps(_round_figures(tables)), encoding="utf-8")


def _round_figures(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _round_figures(entry) for key, entry in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) and value % 1 else value
