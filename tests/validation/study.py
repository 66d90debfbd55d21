"""Shared parts of the studies: their inputs, published figures and tables."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import tomli_w

from predictors.training import traces
from predictors.weights_file import shipped_sha256

PUBLISHED = Path(__file__).parent / "published"
MEASURED = Path(traces.__file__).parent / "measured"
"""Tables of `make on-gpu`, a folder for each GPU."""

REAL_TRACES = "TRACEKIT_REAL_TRACES"
AICONFIGURATOR = "TRACEKIT_AICONFIGURATOR"
NEUSIGHT = "TRACEKIT_NEUSIGHT"
KERNELBENCH = "TRACEKIT_KERNELBENCH"
CUDNN_FRONTEND = "TRACEKIT_CUDNN_FRONTEND"
KERNEL_DATA = "TRACEKIT_KERNEL_DATA"
SERVED_TRACES = "TRACEKIT_SERVED_TRACES"
SERVED_LOADS = "TRACEKIT_SERVED_LOADS"
RECORDED_SAMPLES = "TRACEKIT_RECORDED_SAMPLES"
FIT = "TRACEKIT_FIT"
CPU_FILE = "TRACEKIT_CPU"
TIMM_RESULTS = "TRACEKIT_TIMM_RESULTS"
TRAINING_JOBS = "TRACEKIT_TRAINING_JOBS"

KNOWN_INPUTS = {
    REAL_TRACES: "a folder of real traces",
    AICONFIGURATOR: "a checkout of github.com/ai-dynamo/aiconfigurator",
    NEUSIGHT: "a checkout of github.com/sitar-lab/NeuSight",
    KERNELBENCH: "a checkout of github.com/ScalingIntelligence/KernelBench",
    CUDNN_FRONTEND: "a checkout of github.com/NVIDIA/cudnn-frontend",
    KERNEL_DATA: "a folder of measured kernels: aiconfigurator/*.parquet and neusight/*.parquet",
    SERVED_TRACES: "results/profile in a checkout of github.com/harishvs/moe-inference-optimize",
    SERVED_LOADS: "a folder with served.csv: aiconfigurator's TTFT and TPOT; and steps.csv: PipeWeave's steps",
    TIMM_RESULTS: "results/ in a checkout of github.com/huggingface/pytorch-image-models",
    TRAINING_JOBS: "a folder with published_throughput.csv: published throughputs of training jobs",
    CPU_FILE: "the file of this CPU that `tracekit calibrate --cpu -o FILE` wrote with OMP_NUM_THREADS=1",
    FIT: "a folder that `python -m predictors.training fit` wrote",
    RECORDED_SAMPLES: "the folder `samples` of an archive that `make on-gpu` wrote",
}
"""Environment variable -> what it names."""


class MissingInputError(Exception):
    """An input of a study isn't on this machine; the message says how to name it."""


def find_input(variable: str) -> Path:
    """Return the path of an input.

    Args:
        variable: One of `KNOWN_INPUTS`.

    Raises:
        MissingInputError: The environment doesn't name it, or names what isn't there.
    """
    path = os.environ.get(variable)
    if not path:
        raise MissingInputError(f"set {variable} to {KNOWN_INPUTS[variable]}")
    if not Path(path).exists():
        raise MissingInputError(f"{variable} names {path}, which doesn't exist; set it to {KNOWN_INPUTS[variable]}")
    return Path(path)


def read_published(name: str) -> pl.DataFrame:
    """Read published figures; their column `source` says where each is from.

    Args:
        name: Name of a file in published/, without its suffix.
    """
    return pl.read_csv(PUBLISHED / f"{name}.csv", infer_schema_length=None)


def list_sources(*names: str) -> str:
    """Return a sentence that cites the sources of published figures.

    Args:
        names: Files in published/, without suffix.
    """
    citations = dict(read_published("sources").iter_rows())
    sources = dict.fromkeys(source for name in names for source in read_published(name)["source"].unique().sort())
    cited = (f"*{source}*: {citations[source]}" if source in citations else source for source in sources)
    return f"Sources: {'; '.join(cited)}.\n"


def write_figures(path: Path, comment: str, tables: Mapping[str, Any]) -> None:
    """Write figures that predictions cite as TOML, with the weights that they belong to.

    Args:
        path: File beside the weights.
        comment: Its first lines, comments of TOML.
        tables: Figures by table.
    """
    text = comment + tomli_w.dumps({"weights": shipped_sha256(), **tables})
    path.write_text(text, encoding="utf-8")


def format_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table and show progress; the first column is text, the others are numbers."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)]]
    for cells in rows:
        print("  " + " | ".join(cells), file=sys.stderr, flush=True)
        lines.append(cells)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


@dataclass(frozen=True)
class Result:
    """A prediction beside a published figure.

    Attributes:
        group: Of predictions that are summed up together.
        error_pct: Of the prediction.
        is_inside: Whether the interval holds the figure.
    """

    group: str
    error_pct: float
    is_inside: bool


SUMMARY_HEADINGS = ("", "predictions", "absolute error, median", "lowest error", "highest", "in interval")
"""Of rows of `summarize_results`."""


def format_results(results: Sequence[Result]) -> str:
    """Format a table that sums up results: a row for each group, and one of all."""
    groups = {group: [one for one in results if one.group == group] for group in sorted({one.group for one in results})}
    return format_table(SUMMARY_HEADINGS, (summarize_results(*group) for group in (*groups.items(), ("all", results))))


def summarize_results(title: str, results: Sequence[Result]) -> tuple[str, ...]:
    """Return a row of `format_results`."""
    errors_pct = [one.error_pct for one in results]
    return (
        *(title, str(len(results)), f"{median(map(abs, errors_pct)):.1f} %"),
        *(f"{end:+.1f} %" for end in (min(errors_pct), max(errors_pct))),
        f"{sum(one.is_inside for one in results)} of {len(results)}",
    )


def format_errors(errors_pct: Sequence[float]) -> tuple[str, str, str]:
    """Return three cells: the median error, the median of its magnitude, and the error of the largest magnitude."""
    absolute = median(map(abs, errors_pct))
    return f"{median(errors_pct):+.0f} %", f"{absolute:.0f} %", f"{max(errors_pct, key=abs):+.0f} %"


def format_kernel_errors(kernels: pl.DataFrame, measured: str) -> tuple[str, str, str]:
    """Return three cells: how many kernels, their median |error|, and how many lie in their interval.

    Args:
        kernels: With predicted `time_us`, `low_us` and `high_us`.
        measured: Column of the measured time in microseconds.
    """
    if kernels.is_empty():
        return "0", "–", "–"
    error_pct = 100 * (kernels["time_us"] / kernels[measured] - 1).abs().to_numpy()
    inside = kernels.filter(pl.col(measured).is_between("low_us", "high_us")).height
    return str(kernels.height), f"{np.median(error_pct):.0f} %", str(inside)


def format_yes(value: bool) -> str:
    """Return a cell that says yes or no."""
    return "yes" if value else "no"
