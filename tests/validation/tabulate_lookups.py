"""Tabulate measured look-ups in embedding tables and updates of their rows, from which the predictors learn their law.

python -m tests.validation.tabulate_lookups FOLDER -o predictors/training/lookups.parquet

FBGEMM's look-ups and updates in the traces of a folder, whose indices are assumed to be usual, and PyTorch's look-ups
of `make on-gpu` on the H200 by the distribution of their indices. Those of the H100 test what comes out
(kernels/lookups).
"""

import argparse
import json
from pathlib import Path

import polars as pl

import tracekit as tk
from predictors.training.traces import LOOKUP_COLUMNS, LOOKUPS_TABLE
from tests.validation.study import MEASURED
from tests.validation.tabulate_traces import summarize_times
from tracekit.models.lookups import ZipfPattern
from tracekit.run import prepare_run
from tracekit.workload.op_work import CALL_COLUMNS, compute_work_of_calls

GPU = "h200-sxm"
TRACES = "*_dlrm_*.json.gz"
EXECUTION_TRACE = ".et."
MIN_UPDATE_BYTES = 10**7
"""Of updates of fewer bytes, the slowest thread sets the time."""
LOOKUP_KERNEL = "_codegen_forward_"
BAG_KERNEL = "EmbeddingBag_updateOutputKernel_sum_mean"


def tabulate_trace(path: Path) -> pl.DataFrame:
    """Return the distinct look-ups of a trace with their usual times."""
    run = prepare_run(tk.load(path))
    assert run.gpu is not None, path
    large = pl.col("name").str.contains(LOOKUP_KERNEL) | (pl.col("bytes") > MIN_UPDATE_BYTES)
    found = run.kernels.filter(pl.col("warp_clocks").is_not_null(), pl.col("dur_ns") > 0, large)
    timed = found.select(*LOOKUP_COLUMNS, measured_us=pl.col("dur_ns") / 1e3)
    kernels = timed.group_by(LOOKUP_COLUMNS, maintain_order=True).agg(summarize_times(), pl.len().alias("count"))
    return kernels.with_columns(gpu=pl.lit(run.gpu.slug), trace=pl.lit(path.name.partition(".")[0]))


def tabulate_bags(gpu: str) -> pl.DataFrame:
    """Return the look-ups by `EmbeddingBag` measured on a GPU."""
    measured = pl.read_csv(MEASURED / gpu / "lookups.csv")
    found = measured.filter(pl.col("phase") == "forward", pl.col("kernel").str.contains(BAG_KERNEL))
    frames = [_compute_bag_work(row) for row in found.iter_rows(named=True)]
    return pl.concat(frames).with_columns(
        gpu=pl.lit(gpu), trace=pl.lit(f"{gpu}_lookups"), count=1, share=1.0, measured_us=found["us"].cast(pl.Float32)
    )


def _compute_bag_work(row: dict[str, int | float]) -> pl.DataFrame:
    indices, bags = int(row["bags"] * row["pooling"]), int(row["bags"])
    call = dict.fromkeys(CALL_COLUMNS) | {
        "op": "aten::_embedding_bag",
        "name": BAG_KERNEL,
        "kind": "kernel",
        "input_dims": json.dumps([[row["rows"], row["width"]], [indices], [bags]]),
        "input_types": json.dumps(["float", "long int", "long int"]),
    }
    return compute_work_of_calls(pl.DataFrame([call]), ZipfPattern(float(row["alpha"])))


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=LOOKUPS_TABLE)
    args = parser.parse_args()
    traces = [path for path in sorted(args.folder.glob(TRACES)) if EXECUTION_TRACE not in path.name]
    frames = [tabulate_bags(GPU), *map(tabulate_trace, traces)]
    table = pl.concat(
        [frame.select("gpu", "trace", *LOOKUP_COLUMNS, "measured_us", "count") for frame in frames],
        how="vertical_relaxed",
    )
    table.write_parquet(args.output, compression="zstd", compression_level=19)
    print(table.group_by("gpu").len().sort("gpu"))


if __name__ == "__main__":
    main()
