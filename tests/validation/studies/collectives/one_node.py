"""Collectives on one node by the fitted constants, and of machines that the fit did not see.

NCCL's collectives and the all-reduces that vLLM, SGLang and TensorRT-LLM bring along. A machine that is left out is
predicted by constants fitted to the others; the last tables are of machines that no fit has seen.
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from tests.validation.studies.collectives import custom_reduce_fit, nccl_fit
from tests.validation.studies.collectives.custom_reduce_fit import MAX_BYTES
from tests.validation.studies.collectives.nccl_fit import (
    PCIE,
    SIBLINGS,
    predict_calibrated,
    predict_left_out,
    predict_us,
)
from tests.validation.studies.collectives.published_results import (
    CALL,
    GIVEN_HEADINGS,
    predict_from_measured,
    summarize_given,
)
from tests.validation.study import AICONFIGURATOR, KERNEL_DATA, find_input, format_table
from tracekit.comm import load_cluster, predict
from tracekit.comm.constants import CONSTANTS_FILE

INPUTS = (AICONFIGURATOR, KERNEL_DATA)
HEADINGS = ("machine", "all sizes, median", "P90", "above 1 MB, median", "P90", "rows")
PCIE_BOARD, PCIE_BOARDS = "rtx_pro_6000_server", "8xrtx-pro-6000-server"
SHORT_BYTES, LONG_BYTES = 2**10, 2**29
"""Of the two all-reduces that are given of a machine."""

Tables = dict[str, Any]


def run() -> str:
    """Return tables of |error| in percent by machine."""
    return "\n".join(("# Collectives on one node\n", "|error| in percent.\n", *list_sections()))


def update() -> None:
    """Write the fitted constants, which predictions use."""
    tables = fit_custom_reduces(fit_nccl()[0])
    nccl_fit.write_constants(tables, CONSTANTS_FILE)


@cache
def fit_nccl() -> tuple[Tables, pl.DataFrame, pl.DataFrame]:
    """Fit NCCL's constants, and predict its rows with each machine and with each machine's collective left out."""
    rows = nccl_fit.load_tables(find_input(KERNEL_DATA))
    tables = nccl_fit.fit(rows, read_constants())
    unseen = predict_left_out(rows, tables, ["machine"])
    linked = ~pl.col("system").is_in(PCIE)
    sibling = predict_left_out(rows.filter(linked), tables, ["system", "collective"])
    known, others = (nccl_fit.compute_half_width(part) for part in (sibling, unseen.filter(linked)))
    tables["interval"] |= {"known": known, "unseen": others}
    return tables, unseen, sibling


def fit_custom_reduces(tables: Mapping[str, Any]) -> Tables:
    """Fit the constants of custom all-reduces."""
    return custom_reduce_fit.fit(custom_reduce_fit.load_tables(find_input(KERNEL_DATA)), tables)


def read_constants() -> Tables:
    """Read the shipped constants."""
    return tomllib.loads(CONSTANTS_FILE.read_text(encoding="utf-8"))


def list_sections() -> Iterator[str]:
    """Yield the headings and tables."""
    checkout = find_input(AICONFIGURATOR)
    tables, unseen, sibling = fit_nccl()
    rows = nccl_fit.load_tables(find_input(KERNEL_DATA))
    yield from tabulate("NCCL, in the fit", rows.with_columns(predicted_us=predict_us(rows, tables)))
    yield from tabulate("NCCL, machine left out", unseen)
    yield from tabulate_calibrated("NCCL, machine left out, two all-reduces of it given", unseen)
    yield from tabulate("NCCL, one collective of one machine left out", sibling)
    yield from list_custom_sections(read_constants())
    public = nccl_fit.load_checkout(checkout)
    siblings = public.filter(pl.col("machine").is_in(list(SIBLINGS)))
    seen = siblings.with_columns(predicted_us=predict_us(siblings, tables))
    yield from tabulate("NCCL, siblings of machines in the fit", seen)
    inside = (seen["predicted_us"].log() - seen["measured_us"].log()).abs() < np.log(tables["interval"]["known"])
    yield f"{100 * (inside.mean() or 0):.0f} % within the interval.\n"
    parts = (
        part.with_columns(**predict_calibrated(part, tables, known=True)) for part in siblings.partition_by("machine")
    )
    yield from tabulate_calibrated("NCCL, siblings, two all-reduces of each given", pl.concat(parts))
    everything = predict_left_out(public, tables, ["machine"])
    yield from tabulate("NCCL, all public machines, each left out", everything)
    yield from tabulate_calibrated("NCCL, all public machines, each left out, two all-reduces of it given", everything)
    yield from list_board_section(nccl_fit.load_checkout(checkout, {PCIE_BOARD: PCIE_BOARD}))
    known, others = (tables["interval"][name] for name in ("known", "unseen"))
    yield f"Intervals, as factors: known {known:.4g}, unseen {others:.4g}.\n"
    yield "Source: github.com/ai-dynamo/aiconfigurator at 095f58a5.\n"


def list_custom_sections(base: Mapping[str, Any]) -> Iterator[str]:
    """Yield the headings and tables of custom all-reduces."""
    rows = custom_reduce_fit.load_tables(find_input(KERNEL_DATA))
    tables = custom_reduce_fit.fit(rows, base)
    own = rows.filter(pl.col("bytes") <= MAX_BYTES)
    unseen = [
        part.with_columns(
            predicted_us=predict_us(part, custom_reduce_fit.fit(own.filter(pl.col("machine") != name), base))
        )
        for (name,), part in own.partition_by("machine", as_dict=True).items()
    ]
    siblings = custom_reduce_fit.load_siblings(find_input(AICONFIGURATOR)).filter(pl.col("bytes") <= MAX_BYTES)
    by_nccl = own.with_columns(predicted_us=predict_us(own.drop("custom"), tables))
    yield from tabulate("Custom all-reduces, in the fit", own.with_columns(predicted_us=predict_us(own, tables)))
    yield from tabulate("Custom all-reduces, machine left out", pl.concat(unseen))
    yield from tabulate("Custom all-reduces, by NCCL's model instead", by_nccl)
    predicted = siblings.with_columns(predicted_us=predict_us(siblings, tables))
    yield from tabulate("Custom all-reduces, siblings of machines in the fit", predicted)


def list_board_section(measured: pl.DataFrame) -> Iterator[str]:
    """Yield the table of PCI Express boards, of which two all-reduces are given."""
    rows = measured.with_columns(cluster=pl.lit(PCIE_BOARDS), nodes=pl.lit(1))
    time_us = predict(rows.select(CALL), load_cluster(PCIE_BOARDS))["time_us"]
    rows = rows.with_columns(error=(time_us / rows["measured_us"]).log()).with_row_index()
    reduces = rows.filter(collective="all_reduce", dtype="half")
    ends = pl.concat([reduces.filter(bytes=SHORT_BYTES, ranks=2), reduces.filter(bytes=LONG_BYTES, ranks=8)])
    found = predict_from_measured(rows.drop("index"), ends["index"].to_list())
    yield "## Up to eight RTX PRO 6000 on PCI Express, two all-reduces given\n"
    yield format_table(GIVEN_HEADINGS, [summarize_given("two all-reduces", found)])


def tabulate(title: str, predicted: pl.DataFrame) -> Iterator[str]:
    """Yield a heading and the errors by machine."""
    yield f"## {title}\n"
    rows = nccl_fit.compute_errors(predicted)
    yield format_table(
        HEADINGS,
        ((machine, *(f"{one:.1f}" for one in errors), str(count)) for machine, *errors, count in rows.iter_rows()),
    )


def tabulate_calibrated(title: str, rows: pl.DataFrame) -> Iterator[str]:
    """Yield the errors with two all-reduces given, and how many of the rows lie in their intervals."""
    yield from tabulate(title, rows.with_columns(predicted_us="calibrated_us"))
    off = (rows["calibrated_us"] / rows["measured_us"]).log().abs().exp()
    inside = (off <= rows["calibrated_width"]).sum()
    yield f"{100 * inside / rows.height:.0f} % within the interval.\n"
