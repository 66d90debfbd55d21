"""FBGEMM's look-ups and their backward passes in traces of recommenders, from shapes alone.

The law of look-ups was fitted on these traces too; kernels/lookups has a GPU that was left out. Clocks of a row's
update were chosen on the eight V100 ranks; nothing else on the A100. How indices are distributed is assumed, as no
trace records it.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import polars as pl

import tracekit as tk
from predictors import load_gpu
from tests.validation.study import REAL_TRACES, find_input, format_table
from tracekit.parallelism.relayout import add_measured_times
from tracekit.prediction.kernel_times import KernelTimePredictor
from tracekit.run import prepare_run

INPUTS = (REAL_TRACES,)
TRACES = ("v100_dlrm_train_rank*_of_8.json.gz", "v100_dlrm_test.json.gz", "a100_dlrm_control.json.gz")
KINDS = {
    "look-up": "embedding_codegen_forward",
    "update, a warp a row": "_warp_per_row",
    "update, a block a row": "_cta_per_row",
    "gradient of weights": "grad_indice_weights",
    "indices in one list": "linearize_index",
    "sorting": "RadixSort|ReduceByKey",
}
HEADINGS = ("traces", "kernels", "number", "measured, total", "predicted", "median of measured", "inside")


def run() -> str:
    """Return a row for each kind of kernel and each group of traces."""
    folder = find_input(REAL_TRACES)
    rows = (row for pattern in TRACES for row in list_rows(pattern, sorted(folder.glob(pattern))))
    return "\n".join(("# FBGEMM's kernels in traces\n", format_table(HEADINGS, rows)))


def list_rows(pattern: str, paths: list[Path]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of traces of one job."""
    kernels = pl.concat(map(predict_trace, paths))
    for kind, name in KINDS.items():
        known = kernels.filter(pl.col("name").str.contains(name) & pl.col("time_us").is_not_null())
        if known.height:
            yield (
                *(pattern.removesuffix(".json.gz").replace("rank*", "*"), kind, str(known.height)),
                *(f"{float(known[column].sum()) / 1e3:.3g} ms" for column in ("measured_us", "time_us")),
                f"{median(known['time_us'] / known['measured_us']):.2f}",
                f"{int(known['inside'].sum())} of {known.height}",
            )


def predict_trace(path: Path) -> pl.DataFrame:
    """Predict the kernels of a trace on its own GPU."""
    run = prepare_run(tk.load(path))
    assert run.gpu is not None
    kernels = add_measured_times(run.program)
    of_lookups = pl.col("op").str.contains("fbgemm::.*embedding|SplitLookup").fill_null(value=False)
    chosen = kernels.filter(of_lookups & (pl.col("dur_ns") > 0))
    times = KernelTimePredictor(chosen, None, by_shape=True).predict(load_gpu(run.gpu.slug), {})
    inside = pl.col("measured_us").is_between("low_us", "high_us")
    return (
        chosen.select("name", "measured_us")
        .hstack(times.select("time_us", "low_us", "high_us"))
        .with_columns(inside=inside)
    )
