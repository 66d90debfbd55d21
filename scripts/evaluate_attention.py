"""Holds times of attention over whole sequences, as training has it, against published ones; nothing is fitted to them.

python scripts/evaluate_attention.py [--rows] [--write]

In bf16 or fp16, predicted from shapes, the stack known as from a kernel's name; ``--rows`` prints each, ``--write``
keeps the median of each GPU beside the weights, for reports. Sources: fa3,
FlashAttention-3 (arXiv:2407.08608), figures 5 and 6, rates of 16,384 tokens and 2,048 columns; h20 and b200,
Dao-AILab/flash-attention issues 1310 and 1589; a5000, gpu-mode/ring-attention issue 10; cudnn, NVIDIA/cudnn-frontend at
3929da2, benchmark/sdpa_benchmark_training/results, backward passes where it has both not the deterministic ones.
"""

import sys
from pathlib import Path

import polars as pl
from synthetic.lines import print_table

from predictors import load_gpu, predict
from predictors.fitted import SHIPPED, shipped_sha256

TABLE = Path(__file__).with_name("standin") / "attention.csv"


def main() -> None:
    """Prints the tables."""
    rows = pl.concat(predicted(part) for _, part in pl.read_csv(TABLE).group_by("gpu", maintain_order=True))
    error = pl.col("time_us") / pl.col("us") - 1
    rows = rows.with_columns(error=100 * error, inside=pl.col("us").is_between("low_us", "high_us"))
    if "--rows" in sys.argv:
        print_table(
            "| GPU | kernels | shape | published, µs | predicted | error |", map(line, rows.iter_rows(named=True))
        )
    groups = rows.group_by("stack", "gpu", "direction", maintain_order=True).agg(
        pl.len().alias("rows"),
        bias=pl.col("error").median(),
        off=pl.col("error").abs().median(),
        tail=pl.col("error").abs().quantile(0.9),
        worst=pl.col("error").get(pl.col("error").abs().arg_max()),
        inside=pl.col("inside").sum(),
    )
    print_table(
        "| kernels | GPU | | rows | error, median | of it absolute | 90th percentile | worst | in interval |",
        (
            f"| {stack} | {load_gpu(gpu).name} | {direction} | {count} | {bias:+.0f} % | {off:.0f} % | {tail:.0f} % "
            f"| {worst:+.0f} % | {inside} |"
            for stack, gpu, direction, count, bias, off, tail, worst, inside in groups.iter_rows()
        ),
    )
    off = rows["error"].abs()
    print_table(
        "| all | absolute, median | 90th percentile | in interval |",
        [f"| {off.len()} | {off.median():.0f} % | {off.quantile(0.9):.0f} % | {rows['inside'].sum()} |"],
    )
    if "--write" in sys.argv:
        write(rows)


def write(rows: pl.DataFrame) -> None:
    """Keeps the errors by GPU, with which weights they are of."""
    lines = [
        "# Median |error| of attention over whole sequences, percent, against published times by",
        "# scripts/evaluate_attention.py.",
        f'weights = "{shipped_sha256()}"',
        "",
        "[gpus]",
    ]
    of_gpus = rows.group_by("gpu").agg(pl.col("error").abs().median()).sort("gpu")
    lines += [f"{load_gpu(gpu).slug} = {error:.1f}" for gpu, error in of_gpus.iter_rows()]
    (SHIPPED / "sequences.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def predicted(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of one GPU with what they are predicted to take."""
    table = rows.select(
        *("direction", "causal", "batch", "heads", "kv_heads", "window"),
        family=pl.lit("attention"),
        dtype=pl.lit("bf16"),
        paged=pl.lit(False),
        framework="stack",
        q_len="tokens",
        kv_len="tokens",
        head_dim="width",
    )
    return rows.hstack(predict(table, rows["gpu"][0]).select("time_us", "low_us", "high_us"))


def line(row: dict[str, object]) -> str:
    """A row of the whole table."""
    shape = f"{row['batch']} × {row['heads']} × {row['tokens']} × {row['width']}"
    kind = f"{row['stack']} {row['direction']}{', causal' if row['causal'] else ''}"
    return f"| {row['gpu']} | {kind} | {shape} | {row['us']:.0f} | {row['time_us']:.0f} | {row['error']:+.0f} % |"


if __name__ == "__main__":
    main()
