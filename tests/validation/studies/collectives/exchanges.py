"""Exchanges of tokens between experts by DeepEP, vLLM and TensorRT-LLM, and on machines that the fit did not see.

One node. A machine that is left out is predicted by constants fitted to the others, with the factors of its group; a
group that is left out without them. Of TensorRT-LLM's kernels over NVLink, of GB200s alone, each number of ranks is
left out. NCCL's model of the same bytes stands beside.
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from tests.validation.studies.collectives import exchange_fit, nccl_fit
from tests.validation.study import AICONFIGURATOR, find_input, format_table
from tracekit.arrays import Floats
from tracekit.comm import load_cluster, predict
from tracekit.comm.constants import CONSTANTS_FILE, parse_constants

INPUTS = (AICONFIGURATOR,)
CLUSTERS = {
    "h100_sxm": "dgx-h100", "h200_sxm": "dgx-h200", "b200_sxm": "dgx-b200", "b300_sxm": "dgx-b300",
    "gb200": "gb200-nvl72", "gb300": "gb300-nvl72",
}  # fmt: skip
HEADINGS = ("exchange", "rows", "error, median", "90th percentile", "in interval")

Tables = dict[str, Any]


def run() -> str:
    """Return tables of |error| by exchange and by machine."""
    return "\n".join(("# Exchanges of tokens between experts\n", "|error| in percent, one node.\n", *list_sections()))


def update() -> None:
    """Write the fitted constants, which predictions use."""
    nccl_fit.write_constants(fit_exchanges()[0], CONSTANTS_FILE)


@cache
def load_rows() -> pl.DataFrame:
    """Load the measured exchanges."""
    return exchange_fit.load_tables(next(find_input(AICONFIGURATOR).rglob("systems/data")))


@cache
def fit_exchanges() -> tuple[Tables, pl.DataFrame, pl.DataFrame]:
    """Fit the constants, and predict the rows with each machine and each group of machines left out."""
    rows, base = load_rows(), tomllib.loads(CONSTANTS_FILE.read_text(encoding="utf-8"))
    tables = exchange_fit.fit(rows, base)
    alone = exchange_fit.is_of_one_machine()
    machine, group = (predict_left_out(rows.filter(~alone), base, key) for key in ("machine", "group"))
    machine = pl.concat([machine, predict_left_out(rows.filter(alone), base, "ranks")])
    of_machine, of_group = map(exchange_fit.compute_widths, (machine, group))
    for name, costs in tables["exchanges"]["costs"].items():
        unseen = of_group.get(name, max(of_group.values()))
        costs |= {"known": of_machine[name], "unseen": max(unseen, of_machine[name])}
    return tables, machine, group


def predict_left_out(rows: pl.DataFrame, base: Mapping[str, Any], key: str) -> pl.DataFrame:
    """Predict each machine, or group of machines, by constants fitted to the others."""
    return pl.concat(
        part.with_columns(predicted_us=predict_us(part, exchange_fit.fit(rows.filter(pl.col(key) != name), base)))
        for (name,), part in rows.partition_by(key, as_dict=True, maintain_order=True).items()
    )


def predict_us(rows: pl.DataFrame, tables: Mapping[str, Any], nccl: bool = False) -> Floats:
    """Predict the rows on their machines with the constants of ``tables``; as NCCL's if ``nccl``."""
    constants, result = parse_constants(tables), np.empty(rows.height)
    named = rows.with_row_index("row").with_columns(
        collective=pl.lit("all_to_all"), dtype=pl.lit("bf16"), nodes=pl.lit(1)
    )
    for (machine,), part in named.partition_by("machine", as_dict=True).items():
        calls = part.select("collective", "bytes", "ranks", "dtype", "nodes", *(() if nccl else ("exchange",)))
        times = predict(calls, load_cluster(CLUSTERS[str(machine)]), constants=constants)
        result[part["row"].to_numpy()] = times["time_us"].to_numpy()
    return result


def list_sections() -> Iterator[str]:
    """Yield the headings and tables."""
    rows, (tables, machine, group) = load_rows(), fit_exchanges()
    costs = tables["exchanges"]["costs"]
    known, unseen = ({name: cost[key] for name, cost in costs.items()} for key in ("known", "unseen"))
    yield from tabulate("In the fit", rows.with_columns(predicted_us=predict_us(rows, tables)), known)
    yield from tabulate("Machine left out", machine, known)
    yield from tabulate("Group of machines left out", group, unseen)
    by_nccl = rows.with_columns(predicted_us=predict_us(rows, tables, nccl=True))
    yield from tabulate("As NCCL's all-to-all", by_nccl, dict.fromkeys(costs, tables["interval"]["known"]))
    yield "Source: aiconfigurator-core 0.12.0.\n"


def tabulate(title: str, rows: pl.DataFrame, widths: Mapping[str, float]) -> Iterator[str]:
    """Yield a heading and the errors by exchange, by machine and of all; ``widths`` are by exchange."""
    yield f"## {title}\n"
    error = (pl.col("predicted_us") / pl.col("measured_us")).log()
    width = pl.col("exchange").replace_strict(widths, return_dtype=pl.Float64)
    found = rows.with_columns(error=100 * (error.exp() - 1).abs(), inside=error.abs() <= width.log())
    groups = [found.with_columns(name=pl.col(key)) for key in ("exchange", "machine")]
    every = pl.concat([*groups, found.with_columns(name=pl.lit("all"))], how="diagonal")
    table = every.group_by("name", maintain_order=True).agg(
        pl.len(), pl.col("error").median(), p90=pl.col("error").quantile(0.9), inside=100 * pl.col("inside").mean()
    )
    yield format_table(
        HEADINGS,
        (
            (name, str(count), f"{middle:.0f}", f"{most:.0f}", f"{inside:.0f} %")
            for name, count, middle, most, inside in table.iter_rows()
        ),
    )
