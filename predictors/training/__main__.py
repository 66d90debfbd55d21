"""`python -m predictors.training fit|evaluate --data DIR --out DIR`: makes weights, or the tables of their errors.

What is measured under the folders, and the kernels of traces and the published rates that are kept here, go into both.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from pathlib import Path

import polars as pl

from predictors.errors import PredictorError
from predictors.gpu_names import load_gpu
from predictors.gpu_order import save_gpu_order
from predictors.training import published, traces
from predictors.training.evaluate import summarise_by_library, summarise_errors, summarise_views, tell_as_traces
from predictors.training.fit import load_measurements
from predictors.training.fit_all import fit_all, replace_laws
from predictors.training.order import derive_gpu_order
from predictors.training.report import format_card, format_markdown
from predictors.training.widths import compute_coverage
from predictors.weights_file import SHIPPED_WEIGHTS, load_weights, save_weights

BUNDLED_TABLES = (
    traces.TRACES_TABLE,
    traces.LOOKUPS_TABLE,
    published.RATES_TABLE,
    published.KERNELS_TABLE,
    published.ATTENTION_TABLE,
)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m predictors.training", description=__doc__)
    parser.add_argument("command", choices=["fit", "evaluate"])
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        nargs="+",
        help="checkouts of aiconfigurator and NeuSight, or a folder of them",
    )
    parser.add_argument("--hold-out", default="", help="comma-separated GPUs to leave out")
    parser.add_argument(
        "--law", action="append", default=[], help="fit this law and keep the shipped weights' others; may be repeated"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights, or for the tables")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    args = parser.parse_args()

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes would wait for each other's threads
    try:
        held_out = sorted(load_gpu(name).slug for name in args.hold_out.split(",") if name)
        measured = load_measurements([*args.data, *BUNDLED_TABLES], held_out)
    except (PredictorError, ValueError) as error:
        raise SystemExit(f"predictors.training: {error}") from error
    if unknown := set(args.law) - measured.keys():
        raise SystemExit(f"predictors.training: no measurements of {', '.join(sorted(unknown))}")
    weights, rows = fit_all({law: measured[law] for law in args.law or measured}, args.jobs)
    kept = {}
    if args.law:
        weights = replace_laws(load_weights(), weights)
        laws = tomllib.loads((SHIPPED_WEIGHTS / "card.toml").read_text())["laws"]
        kept = {law: entry for law, entry in laws.items() if law not in args.law}
    errors = summarise_errors(rows)
    args.out.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(args.out / "scored.parquet")
    if args.command == "fit":
        save_weights(weights, args.out)
        save_gpu_order(derive_gpu_order(load_weights(args.out)), args.out)
        (args.out / "card.toml").write_text(
            format_card(weights, summarise_errors(tell_as_traces(rows)), held_out, kept)
        )
    else:
        errors.write_csv(args.out / "errors.csv", float_precision=2)
    (args.out / "errors.md").write_text(
        format_markdown(errors, summarise_views(rows), summarise_by_library(rows), weights, compute_coverage(rows))
    )
    print(_format_errors(errors))  # noqa: T201


def _format_errors(errors: pl.DataFrame) -> str:
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200, tbl_hide_dataframe_shape=True, float_precision=1):
        return str(errors)


if __name__ == "__main__":
    main()
