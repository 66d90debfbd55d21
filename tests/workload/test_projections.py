"""Products beside attention get their shapes from its heads and the model's width."""

from dataclasses import replace

import polars as pl

import tracekit as tk
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table
from tracekit.workload.work_inference import model_attention

TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1"
OP = "vllm::unified_attention_with_output"
# 512 tokens, 16 heads and 4 of the keys, each 64 wide.
DIMS = [[512, 16, 64], [512, 4, 64], [512, 4, 64], [512, 16, 64], []]


def layer(builder, start, names):
    """Kernels of a graph, then attention, then kernels of the next graph: a name each, and "attention"."""
    for i, name in enumerate(names):
        at = start + 10 * i
        if name == "attention":
            builder.op(OP, at, 8, dims=DIMS, types=["c10::BFloat16"] * 4 + [""])
            builder.kernel("kernel_unified_attention_2d", at + 2000, 5, launch=at + 1)
        else:
            builder.kernel(name, at + 2000, 5, launch=at + 1, call="hipGraphLaunch")
    return builder


def products(builder, hidden=((512, 1024),)):
    for i, shape in enumerate(hidden):
        builder.op("aten::index", 900 + 10 * i, 5, dims=[list(shape), []], types=["c10::BFloat16", ""])
    kernels = build_kernel_table(builder.load().rank()).filter(pl.col("name") == TENSILE)
    return kernels.select("m", "n", "k", "work_from").rows()


WHOLE = ["rmsnorm", TENSILE, "rotary_embedding_kernel", "attention", TENSILE, "rmsnorm"]
FOUND = [(512, (16 + 2 * 4) * 64, 1024, "projection"), (512, 1024, 16 * 64, "projection")]
NOTHING = (None, None, None, None)


def test_the_products_before_and_after():
    # The model is as wide as its heads here: then no matrix tells them apart, so it is wider.
    found = [(512, 1536, 2048, "projection"), (512, 2048, 1024, "projection")]
    assert products(layer(layer(TraceBuilder(), 0, WHOLE), 100, WHOLE), ((512, 2048),)) == found * 2


def test_separate_projections_are_left_alone():
    names = ["rmsnorm", TENSILE, TENSILE, TENSILE, "attention", TENSILE, "rmsnorm"]
    found = products(layer(TraceBuilder(), 0, names), ((512, 2048),))
    assert found == [NOTHING] * 3 + [(512, 2048, 1024, "projection")]


def test_a_product_belongs_to_one_attention():
    names = ["rmsnorm", TENSILE, "attention", "attention", "rmsnorm"]
    assert products(layer(TraceBuilder(), 0, names), ((512, 2048),)) == [(512, 1536, 2048, "projection")]


def test_without_one_clear_width_nothing_is_told():
    assert products(layer(TraceBuilder(), 0, WHOLE), ()) == [NOTHING] * 2
    assert products(layer(TraceBuilder(), 0, WHOLE), ((512, 2048), (512, 3000))) == [NOTHING] * 2


def test_recorded_shapes_are_what_is_told(real_traces):
    """The projections of a model in which they have shapes, told again without them."""
    rank = tk.load(real_traces / "b200_eager_rank0_of_8.json.gz").rank()
    kernels = build_kernel_table(rank)
    product = (pl.col("family") == "gemm") & pl.col("op").str.starts_with("aten::")
    hidden = kernels.with_columns(pl.when(~product).then(pl.col("work_from")).alias("work_from"))
    norms = rank.ops.filter(name="_C::fused_add_rms_norm")
    both = model_attention.infer_attention_projections(hidden, replace(rank, ops=norms)).with_columns(
        *(kernels[column].alias(f"recorded_{column}") for column in ("m", "n", "k"))
    )
    told = both.filter(work_from="projection")
    assert told.height > 60
    assert told.select(pl.all_horizontal(pl.col(c) == pl.col(f"recorded_{c}") for c in ("m", "n", "k")).all()).item()
