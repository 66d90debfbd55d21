"""`python -m predictors.training fit|evaluate|join|merge|check`: makes weights, tables of errors, and checks them.

fit        makes weights and their card from the measurements of public sources
evaluate   makes the tables of their errors alone
join       adds a vendor's only measured GPU to a fit, of which nothing else changes
merge      puts the laws of several fits into the shipped weights
check      fails for each engine's release on a GPU of whose kernels too few are inside their interval

What is measured under the folders, and the kernels of traces and the published rates that are kept here, go into a fit.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from predictors.errors import PredictorError
from predictors.gpu_names import list_gpus, load_gpu
from predictors.gpu_order import save_gpu_order
from predictors.training import published, traces
from predictors.training.cells import find_misfits, read_cells, summarise_cells
from predictors.training.download import find_source
from predictors.training.evaluate import summarise_by_library, summarise_errors, summarise_views, tell_as_traces
from predictors.training.fit import load_measurements
from predictors.training.fit_all import fit_all, join_fits, replace_laws, replace_widths
from predictors.training.joined import JOINED_VENDORS, join_to_weights
from predictors.training.order import derive_gpu_order
from predictors.training.report import format_card, format_markdown
from predictors.training.widths import compute_coverage
from predictors.weights_file import SHIPPED_WEIGHTS, Weights, load_weights, save_weights

BUNDLED_TABLES = (
    traces.TRACES_TABLE,
    traces.LOOKUPS_TABLE,
    published.RATES_TABLE,
    published.KERNELS_TABLE,
    published.ATTENTION_TABLE,
)
SCORED_TABLE, CARD = "scored.parquet", "card.toml"


def main() -> None:
    """Run the command line."""
    args = _build_parser().parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the processes would wait for each other's threads
    try:
        args.run(args)
    except (PredictorError, ValueError, OSError) as error:
        raise SystemExit(f"predictors.training: {error}") from error


def _build_parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m predictors.training", description=__doc__, formatter_class=formatter
    )
    commands = parser.add_subparsers(required=True)
    for name, run in (("fit", _run_fit), ("evaluate", _run_evaluate)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument(
            "--data",
            required=True,
            nargs="+",
            help="names of sources, which are downloaded; checkouts of theirs; folders of such",
        )
        command.add_argument("--hold-out", default="", help="comma-separated GPUs to leave out")
        command.add_argument(
            "--law", action="append", default=[], help="fit this law, keep the shipped weights' others; may be repeated"
        )
        command.add_argument("--out", type=Path, required=True, help="folder for the weights, or for the tables")
        command.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    join = commands.add_parser("join")
    join.set_defaults(run=_run_join)
    join.add_argument("fit", type=Path, help="folder that `fit` wrote")
    join.add_argument("--data", required=True, nargs="+", help="as of fit")
    join.add_argument("--out", type=Path, required=True, help="folder for the weights, their card and tables")
    merge = commands.add_parser("merge")
    merge.set_defaults(run=_run_merge)
    merge.add_argument(
        "fits", type=Path, nargs="+", help="folders that `fit --law` wrote; of a law in several, the last"
    )
    merge.add_argument("--out", type=Path, required=True, help="folder for the weights and their card")
    merge.add_argument("--tables", type=Path, help="folder for errors.md and the scored kernels")
    check = commands.add_parser("check")
    check.set_defaults(run=_run_check)
    check.add_argument(
        "weights", type=Path, nargs="?", default=SHIPPED_WEIGHTS, help="folder (default: those that ship)"
    )
    return parser


def _run_fit(args: argparse.Namespace) -> None:
    held_out, weights, rows = _fit(args)
    _write_weights(weights, rows, held_out, args.out, keep_others=bool(args.law))
    _write_tables(weights, rows, args.out)
    _warn_of_misfits(args.out)


def _run_evaluate(args: argparse.Namespace) -> None:
    _, weights, rows = _fit(args)
    errors = _write_tables(weights, rows, args.out)
    errors.write_csv(args.out / "errors.csv", float_precision=2)


def _fit(args: argparse.Namespace) -> tuple[Sequence[str], Weights, pl.DataFrame]:
    """Return the GPUs held out, the fitted laws, and their scored kernels."""
    held_out = sorted(load_gpu(name).slug for name in args.hold_out.split(",") if name)
    measured = load_measurements([*map(find_source, args.data), *BUNDLED_TABLES], held_out)
    if unknown := set(args.law) - measured.keys():
        raise ValueError(f"no measurements of {', '.join(sorted(unknown))}")
    weights, rows = fit_all({law: measured[law] for law in args.law or measured}, args.jobs)
    return held_out, weights, rows


def _run_join(args: argparse.Namespace) -> None:
    slugs = [slug for slug in list_gpus() if load_gpu(slug).vendor in JOINED_VENDORS]
    measured = load_measurements([find_source(name) for name in args.data], gpus=slugs)
    known = load_weights(args.fit)
    fits = join_to_weights(known, pl.read_parquet(args.fit / SCORED_TABLE), measured)
    fitted, rows = join_fits([fits], known)
    fitted = replace_widths(fitted, known)
    _write_weights(fitted, rows, (), args.out, keep_others=True)
    _write_tables(fitted, rows, args.out)
    _warn_of_misfits(args.out)


def _run_merge(args: argparse.Namespace) -> None:
    fits = {folder: pl.read_parquet(folder / SCORED_TABLE) for folder in args.fits}
    fitted, rows = join_fits([(load_weights(folder), rows) for folder, rows in fits.items()], load_weights())
    _write_weights(fitted, rows, (), args.out, keep_others=True)
    if args.tables:
        _write_tables(fitted, rows, args.tables)
    _warn_of_misfits(args.out)


def _run_check(args: argparse.Namespace) -> None:
    if misfits := find_misfits(read_cells(args.weights / CARD)):
        raise ValueError("too few kernels are inside their interval of\n  " + "\n  ".join(misfits))


def _write_weights(
    fitted: Weights, rows: pl.DataFrame, held_out: Sequence[str], folder: Path, *, keep_others: bool
) -> None:
    """Write weights, order of the GPUs and card; laws that were not fitted as they ship, if they are to be kept."""
    weights, kept = (replace_laws(load_weights(), fitted), _read_card()) if keep_others else (fitted, {})
    errors, cells = summarise_errors(tell_as_traces(rows)), summarise_cells(rows, weights)
    others = {law: entry for law, entry in kept.items() if law not in fitted.laws}
    card = format_card(weights, errors, cells, held_out, others, compute_coverage(rows))
    save_weights(weights, folder)
    (folder / CARD).write_text(card)
    save_gpu_order(derive_gpu_order(load_weights(folder)), folder)


def _read_card() -> Mapping[str, object]:
    """Read the entries of the laws in the shipped card."""
    laws: Mapping[str, object] = tomllib.loads((SHIPPED_WEIGHTS / CARD).read_text())["laws"]
    return laws


def _write_tables(weights: Weights, rows: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """Write the scored kernels, and the tables of their errors; print and return these."""
    folder.mkdir(parents=True, exist_ok=True)
    rows.write_parquet(folder / SCORED_TABLE)
    errors = summarise_errors(rows)
    tables = (errors, summarise_views(rows), summarise_by_library(rows), weights, compute_coverage(rows))
    (folder / "errors.md").write_text(format_markdown(*tables))
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=200, tbl_hide_dataframe_shape=True, float_precision=1):
        print(errors)  # noqa: T201
    return errors


def _warn_of_misfits(folder: Path) -> None:
    for line in find_misfits(read_cells(folder / CARD)):
        print(f"warning: {line}")  # noqa: T201


if __name__ == "__main__":
    main()
