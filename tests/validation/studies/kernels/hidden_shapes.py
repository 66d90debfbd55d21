"""GEMMs of traces whose shapes are taken away, against the same with shapes, without and with tiles and grids.

Each trace is predicted for other GPUs with its shapes, and twice without: by products of equal sides, and with the rule
that reads an output's size from tile and grid. What each GEMM alone misses, and the sum of a trace's GEMMs, are medians
over kernels and means over GPUs.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

import polars as pl

import tracekit as tk
from tests.asking import predict
from tests.validation.study import REAL_TRACES, find_input, format_table
from tracekit.run import prepare_run
from tracekit.trace import Trace
from tracekit.workload.work_inference import gemms

INPUTS = (REAL_TRACES,)
TRACES = (
    "a100_dlrm_control", "h100_bert_small_inference", "h100_owlv2_large_inference", "h100_qwen15_05b_inference",
    "h100_timesformer_inference", "h100_vgg13_train_bs512", "h100_vit_inference", "mi300x_bert_small_inference",
    "mi300x_ddp_resnet18", "mi300x_owlv2_large_inference", "mi300x_qwen15_05b_inference",
    "mi300x_timesformer_inference", "mi300x_vit_inference", "mi300x_xdit_sd35", "sglang_qwen3_8b_prefill_decode",
    "v100_resnet50_train_6steps_2021",
)  # fmt: skip
SAMPLES = Path(__file__).parents[4] / "sample_traces" / "recorded"
RECORDED = (
    "h100-sxm_bert_inference", "h100-sxm_dlrm_train", "h100-sxm_gpt2_train", "h100-sxm_llama_prefill",
    "h100-sxm_vit_train", "h200-sxm_bert_inference", "h200-sxm_dlrm_train", "h200-sxm_vit_train",
)  # fmt: skip
TARGETS = ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200", "l40s", "mi300x")
SHAPES = ("input_dims", "input_types", "input_strides", "concrete_inputs")
WAYS = ("nothing", "tiles")
HEADINGS = (
    "trace", "from", "GEMMs", "told", *(f"a GEMM, {way}" for way in WAYS), *(f"their sum, {way}" for way in WAYS),
    *(f"in interval, {way}" for way in WAYS),
)  # fmt: skip


def run() -> str:
    """Return a row for each trace, and one of all."""
    folder = find_input(REAL_TRACES)
    files = [*(folder / f"{name}.json.gz" for name in TRACES), *(SAMPLES / f"{name}.json.gz" for name in RECORDED)]
    found = [compare(tk.load(file)).with_columns(trace=pl.lit(file.name.removesuffix(".json.gz"))) for file in files]
    rows = [tuple(summarize(table["trace"][0], table["source"][0], table)) for table in found]
    every = tuple(summarize("all", "", pl.concat(found)))
    told = tuple(summarize("all that tiles tell of", "", pl.concat(found).filter("told")))
    title = "# GEMMs of traces without their shapes, against the same with shapes\n\n"
    return title + format_table(HEADINGS, [*rows, every, told])


def compare(trace: Trace) -> pl.DataFrame:
    """Return the times of each GEMM on each GPU, with shapes and without."""
    hidden = hide_shapes(trace)
    with_shapes, tiles = prepare_run(trace), prepare_run(hidden)
    nothing = prepare_run(hidden, without_rules=[gemms.OUTPUT_TILES_RULE.name])
    source = with_shapes.gpu
    targets = [name for name in TARGETS if source is None or name != source.slug]
    gemm = pl.Series((with_shapes.kernels["family"] == "gemm") & with_shapes.kernels["work_from"].is_not_null())
    told = tiles.kernels["covered_n"].is_not_null()
    parts = []
    for full, *ways in zip(*(predict(one, targets).targets for one in (with_shapes, nothing, tiles)), strict=True):
        columns = {"full": full.kernels["time_us"], "told": told, "dur_us": with_shapes.kernels["dur_ns"] / 1e3}
        for way, predicted in zip(WAYS, ways, strict=True):
            columns |= {f"{way} {end}": predicted.kernels[f"{end}_us"] for end in ("low", "time", "high")}
        parts.append(pl.DataFrame(columns).filter(gemm).with_columns(gpu=pl.lit(full.gpu)))
    return pl.concat(parts).with_columns(source=pl.lit(source.slug if source else ""))


def hide_shapes(trace: Trace) -> Trace:
    """Return the trace as if it had been recorded without shapes."""
    nothing = [pl.lit(None, pl.String).alias(name) for name in SHAPES]
    return replace(trace, ranks=tuple(replace(rank, ops=rank.ops.with_columns(nothing)) for rank in trace.ranks))


def summarize(name: str, source: str, times: pl.DataFrame) -> Iterator[str]:
    """Yield the cells of a row."""
    yield from (name, source, f"{times.height // max(times['gpu'].n_unique(), 1):,}")
    yield f"{100 * float(times.filter('told')['dur_us'].sum()) / float(times['dur_us'].sum()):.0f} %"
    for way in WAYS:
        yield f"{100 * median((times[f'{way} time'] / times['full'] - 1).abs().to_list()):.0f} %"
    for way in WAYS:
        sums = times.group_by("trace", "gpu").agg(pl.col("full", f"{way} time").sum())
        yield f"{100 * mean((sums[f'{way} time'] / sums['full'] - 1).abs().to_list()):.0f} %"
    for way in WAYS:
        inside = times["full"].is_between(times[f"{way} low"], times[f"{way} high"])
        yield f"{100 * inside.sum() / inside.len():.0f} %"
