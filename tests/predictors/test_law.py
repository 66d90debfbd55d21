"""The analytic law: monotone in work, never slower on a better GPU, finite everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from predictors import load_gpu, predict
from predictors.columns import build_law_inputs, prepare_kernels
from predictors.gpu import Gpu
from predictors.hardware import INLINE_ECC_BANDWIDTH_FRACTION, derive_hardware
from predictors.kernel_identity import BENCHMARK_LOOP
from predictors.kernels import DTYPE_BYTES
from predictors.laws.gemm import CHUNK_ROWS
from predictors.laws.law import LAWS
from predictors.laws.terms import combine_overlapped_us
from predictors.laws.vector import compute_row_terms
from predictors.weights_file import Weights, load_weights
from predictors.work import compute_bound_us, compute_memory_bound_us

H100 = load_gpu("h100-sxm")
MI300X = load_gpu("mi300x")
SIZE = st.integers(1, 2**17)
EIGHTS = st.integers(1, 2**14).map(lambda eighth: 8 * eighth)
"""Lengths of rows in 16 bit that start at multiples of 16 bytes."""
SMALL = st.integers(1, 512)
SHIPPED = load_weights()


def law_us(gpu: Gpu, weights: Weights = SHIPPED, **columns: object) -> float:
    target = derive_hardware(gpu)
    table = prepare_kernels(pl.DataFrame({name: [value] for name, value in columns.items()}), target)
    name = table["law"][0]
    terms = LAWS[name].terms(
        build_law_inputs(table).to_columns(target), target, weights.get_law(name).compute_constants(target)
    )
    return float(terms.time_us[0])


def bound_of(gpu: Gpu, row: dict[str, object]) -> float:
    return float(predict(pl.DataFrame([row]), gpu)["bound_us"][0])


def better(gpu: Gpu, factor: float) -> Gpu:
    """The same GPU with every rate and size larger; power with the arithmetic."""
    return replace(
        gpu,
        sms=int(np.ceil(gpu.sms * factor)),
        boost_clock_mhz=gpu.boost_clock_mhz * factor,
        bandwidth_gbps=gpu.bandwidth_gbps * factor,
        l2_bytes=int(gpu.l2_bytes * factor),
        last_level_cache_bytes=int(gpu.last_level_cache_bytes * factor),
        tdp_w=gpu.tdp_w * factor * np.ceil(gpu.sms * factor) / gpu.sms,
        tensor_tflops={d: t * factor * np.ceil(gpu.sms * factor) / gpu.sms for d, t in gpu.tensor_tflops.items()},
        vector_tflops={d: t * factor * np.ceil(gpu.sms * factor) / gpu.sms for d, t in gpu.vector_tflops.items()},
    )


@given(m=SIZE, n=EIGHTS, k=EIGHTS, grown=st.sampled_from(["m", "n", "k", "batch"]), by=EIGHTS)
@example(m=1, n=8, k=128, grown="k", by=128)
@example(m=2, n=8, k=8, grown="batch", by=8)
@example(m=1, n=8, k=8, grown="m", by=8)
@settings(max_examples=60, deadline=None)
def test_a_product_takes_longer_the_larger_it_is(m: int, n: int, k: int, grown: str, by: int):
    # One product alone reads a weight from memory, several read what was just computed.
    batch = 2 if grown == "batch" else 1
    shape = {"family": "gemm", "dtype": "bf16", "batch": batch, "m": m, "n": n, "k": k}
    assert law_us(H100, **shape) <= law_us(H100, **(shape | {grown: shape[grown] + by})) * 1.0001


@pytest.mark.parametrize("gpu", ["h100-sxm", "t4", "mi300x"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_product_takes_as_long_among_many_as_alone(gpu: str, dtype: str):
    draw, target = np.random.default_rng(0), derive_hardware(load_gpu(gpu))
    shapes = pl.DataFrame({name: draw.integers(1, 4096, CHUNK_ROWS + 20) for name in ("m", "n", "k")})
    frameworks = ["vllm", None, "sglang", None] * (shapes.height // 4)
    table = prepare_kernels(
        shapes.with_columns(family=pl.lit("gemm"), dtype=pl.lit(dtype), framework=pl.Series(frameworks)), target
    )

    def time_us(rows: pl.DataFrame) -> list[float]:
        law, x = rows["law"][0], build_law_inputs(rows)
        return (
            LAWS[law]
            .terms(x.to_columns(target), target, SHIPPED.get_law(law).compute_constants(target, x.frameworks))
            .time_us.tolist()
        )

    some = [0, 1, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 19]
    assert [time_us(table)[row] for row in some] == pytest.approx([time_us(table[[row]])[0] for row in some], rel=1e-12)


@given(batch=SMALL, heads=SMALL, keys=SIZE, grown=st.sampled_from(["batch", "kv_len"]))
@settings(max_examples=40, deadline=None)
def test_decoding_takes_longer_the_more_there_is_to_read(batch: int, heads: int, keys: int, grown: str):
    shape = {"family": "attention", "dtype": "bf16", "batch": batch, "heads": heads, "q_len": 1, "head_dim": 128}
    shape |= {"kv_len": keys + 1, "causal": True}
    assert law_us(H100, **shape) <= law_us(H100, **(shape | {grown: 2 * shape[grown]})) * 1.0001


TRAINING = {
    "family": "attention", "batch": 2, "heads": 64, "q_len": 16384, "kv_len": 16384, "head_dim": 128, "causal": True,
    "paged": False, "framework": "cudnn",
}  # fmt: skip


def training_us(**columns: object) -> float:
    """Attention over whole sequences on a GB200 by the law with its priors."""
    return law_us(load_gpu("gb200"), Weights({}), **(TRAINING | columns))


def test_a_window_shortens_a_backward_pass_but_in_fp8():
    """cuDNN's kernels in fp8 go through all keys (NVIDIA/cudnn-frontend, gpt-oss)."""
    for dtype, direction in (("bf16", "forward"), ("bf16", "backward"), ("fp8", "forward")):
        whole, part = (training_us(dtype=dtype, direction=direction, window=window) for window in (0, 128))
        assert part < 0.15 * whole
    whole, part = (training_us(dtype="fp8", direction="backward", window=window) for window in (0, 128))
    assert part == pytest.approx(whole, rel=0.02)


def test_wide_heads_cost_a_backward_pass_more_than_their_work():
    """Keys of 192 and values of 128 have 1.25 times the work of heads of 128, and 1.5 times the time in bf16."""

    def ratio(dtype: str, direction: str) -> float:
        narrow, wide = (training_us(dtype=dtype, direction=direction, head_dim=width) for width in (128, 160))
        return wide / narrow

    assert ratio("bf16", "backward") > 1.25
    assert max(ratio("bf16", "forward"), ratio("fp8", "backward")) < 1.25


def test_products_and_their_elements_overlap_from_hopper_on():
    """Products of half the time save less than half, as exponentials stay."""
    for gpu in ("h100-sxm", "gb200"):
        half, narrow = (law_us(load_gpu(gpu), Weights({}), **(TRAINING | {"dtype": d})) for d in ("bf16", "fp8"))
        assert 0.5 < narrow / half < 1


@given(size=st.integers(1, 10**10), factor=st.floats(1.0, 4.0))
@settings(deadline=None)
def test_moving_more_takes_longer(size: int, factor: float):
    row = {"family": "elementwise", "dtype": "fp32"}
    assert law_us(H100, **row, bytes=size) <= law_us(H100, **row, bytes=size * factor)


@given(m=SIZE, n=SIZE, k=SIZE, factor=st.sampled_from([1.0, 1.1, 1.5, 2.0]), dtype=st.sampled_from(["bf16", "fp32"]))
@settings(max_examples=60, deadline=None)
def test_a_gpu_better_in_everything_is_never_slower(m: int, n: int, k: int, factor: float, dtype: str):
    shape = {"family": "gemm", "dtype": dtype, "m": m, "n": n, "k": k}
    # More SMs can leave a larger part of the last round idle: that much is real.
    assert law_us(better(H100, factor), **shape) <= law_us(H100, **shape) * 1.05


def test_rows_that_dont_start_at_multiples_of_16_bytes_are_slower_on_nvidia():
    scores = {"family": "gemm", "dtype": "bf16", "batch": 16, "m": 5184, "n": 5184, "k": 64}
    weighted = scores | {"n": 64, "k": 5184}
    for even, size in ((scores, "n"), (weighted, "k")):
        two_bytes, four_bytes = (law_us(H100, **(even | {size: 5184 + more})) for more in (1, 2))
        assert two_bytes > 2 * law_us(H100, **even)
        assert law_us(H100, **even) * 1.2 < four_bytes < two_bytes
        amd = load_gpu("mi300x")
        assert law_us(amd, **(even | {size: 5185})) == pytest.approx(law_us(amd, **even), rel=0.05)
    assert law_us(H100, **(scores | {"m": 5185})) == pytest.approx(law_us(H100, **scores), rel=0.02)


@pytest.mark.parametrize(("gpu", "dtype"), [("h100-sxm", "fp8"), ("b200", "fp8_block"), ("b200", "nvfp4")])
def test_formats_of_a_byte_and_less_have_no_kernels_for_uneven_rows(gpu: str, dtype: str):
    """A width such as 2880 isn't held for uneven, and a row of any length takes as long as a padded one."""
    shapes = [{"n": 4096, "k": 2880}, {"n": 4096, "k": 4104}, {"n": 4104, "k": 4096}]
    rows = [{"family": "gemm", "dtype": dtype, "m": 4096, **shape} for shape in shapes]
    even = {"family": "gemm", "dtype": dtype, "m": 4096, "n": 4352, "k": 4352}
    *times, padded = predict(pl.DataFrame([*rows, even]), gpu)["time_us"]
    assert max(times) < padded


def test_units_of_half_the_rate_take_less_than_twice_as_long_for_a_product():
    gpu = load_gpu("rtx-3090")
    whole = replace(gpu, half_rate_accumulate=False, tensor_tflops={k: 2 * v for k, v in gpu.tensor_tflops.items()})
    columns = {"family": "gemm", "dtype": "fp16", "m": 8192, "n": 8192, "k": 8192}
    assert 1.6 * law_us(whole, **columns) < law_us(gpu, **columns) < 1.95 * law_us(whole, **columns)


def test_a_short_product_of_a_job_finds_its_weights_in_memory_and_a_benchmarks_in_the_cache():
    linear = {"family": "gemm", "dtype": "bf16", "m": 128, "n": 512, "k": 512}
    job, benchmark = predict(pl.DataFrame([linear, linear | {"framework": BENCHMARK_LOOP}]), H100)["time_us"]
    assert 1.2 * benchmark < job < 3 * benchmark


def test_a_jobs_experts_come_from_memory_however_large_the_cache():
    layer = {"family": "moe", "dtype": "bf16", "tokens": 1, "hidden": 2048, "inter": 768, "topk": 8, "experts": 128}
    gpu = load_gpu("l40s")
    weights_us = 8 * 3 * 2048 * 768 * 2 / gpu.bandwidth_gbps / 1e3
    job, benchmark = predict(pl.DataFrame([layer, layer | {"framework": BENCHMARK_LOOP}]), gpu)["time_us"]
    assert benchmark < 0.6 * weights_us < weights_us < job < 1.5 * weights_us


def test_an_uneven_row_is_never_quicker_and_few_blocks_are_slower():
    rows = {"family": "softmax", "dtype": "bf16", "rows": 80_000, "bytes": 1.6e9}
    assert law_us(H100, **rows, cols=5184) <= law_us(H100, **rows, cols=5185)
    reduction = {"family": "reduction", "dtype": "fp32", "rows": 1, "cols": 65536, "bytes": 262144}
    assert law_us(H100, **reduction, blocks=1) > 2 * law_us(H100, **reduction, blocks=132)


def test_a_kernel_that_works_out_each_place_is_held_up_by_its_instructions_not_by_the_memory():
    half = {"family": "elementwise", "dtype": "bf16", "rows": 2**17, "cols": 4096, "flops": 2**29, "bytes": 2**31}
    assert law_us(H100, **half, indexed=True) > 1.7 * law_us(H100, **half)
    double = half | {"dtype": "fp64", "bytes": 2**33}
    assert law_us(H100, **double, indexed=True) < 1.1 * law_us(H100, **double)


def test_both_gradients_of_a_depthwise_convolution_take_its_forward_time():
    pixels, window = 2**18, 9
    sides = [(pixels, 1, window), (pixels, window, 1), (1, window, pixels)]
    channels = {"family": "conv", "dtype": "fp32", "batch": 96, "bytes": 8 * 96 * pixels, "indexed": True}
    forward, *gradients = (law_us(H100, **channels, m=m, n=n, k=k) for m, n, k in sides)
    assert gradients == pytest.approx([forward, forward])
    assert forward > 2 * law_us(H100, **channels | {"indexed": False}, m=pixels, n=1, k=window)


def test_sums_of_few_channels_take_two_clocks_for_each_of_a_channels_elements():
    """64 channels of 10 x 112 x 112 elements on 304 compute units, which took 140 us (PyTorch's own batch norm)."""
    elements = 10 * 112 * 112
    norm = {"family": "norm", "part": "sums", "dtype": "bf16", "rows": 64, "cols": elements, "blocks": 64}
    sums_us = law_us(MI300X, **norm, bytes=2 * 64 * elements)
    assert 2 * elements / MI300X.boost_clock_mhz <= sums_us == pytest.approx(140, rel=0.25)


@pytest.mark.parametrize(("rows", "dtype", "us"), [(12544, "fp32", 65), (16384, "bf16", 78.6)])
def test_sums_of_columns_take_as_long_as_the_loads_of_few_blocks(rows: int, dtype: str, us: float):
    """Gradients of a layer norm's weights over 768 columns, by 24 blocks, in jobs on an H100; an H200 is as fast."""
    bytes_ = 2 * rows * 768 * DTYPE_BYTES[dtype]
    sums = {"family": "norm", "part": "column sums", "dtype": dtype, "rows": rows, "cols": 768, "bytes": bytes_}
    sums |= {"blocks": 24, "threads_per_block": 1024}
    assert law_us(H100, **sums) == pytest.approx(us, rel=0.25)
    assert law_us(H100, **sums | {"blocks": 48}) < 0.65 * law_us(H100, **sums)
    assert law_us(load_gpu("h200-sxm"), **sums) == pytest.approx(law_us(H100, **sums), rel=0.05)


@pytest.mark.parametrize(("cols", "dtype", "us"), [(2**22, "fp32", 8120), (1024, "bf16", 4.0), (512, "bf16", 3.1)])
def test_few_rows_of_pytorchs_layer_norm_take_as_long_as_one(cols, dtype, us):
    """KernelBench's 16 rows of 64 images of 256 x 256, and rows of jobs, on an H100."""
    norm = {"family": "norm", "part": "rows", "dtype": dtype, "cols": cols}
    one, few = (law_us(H100, **norm, rows=rows, bytes=2 * rows * cols * DTYPE_BYTES[dtype]) for rows in (1, 16))
    assert one == pytest.approx(few, rel=0.05)
    assert few == pytest.approx(us, rel=0.2)
    assert law_us(H100, **norm, rows=2**16, bytes=2**17 * cols * DTYPE_BYTES[dtype]) > 10 * few


@pytest.mark.parametrize("family", ["softmax", "norm"])
def test_a_generated_kernel_reads_rows_twice_that_a_block_cant_hold_and_a_softmaxs_sums_once(family: str):
    """A gradient needs no second look at its row, and neither do sums alone: nothing is written in a row's place."""
    kernel = {"family": family, "part": "fused", "dtype": "fp32"}

    def us(cols: int, gone_over: float, direction: str = "forward") -> float:
        rows = 2**29 // cols
        bytes_ = 4 * rows * cols * gone_over
        return law_us(H100, **kernel, rows=rows, cols=cols, blocks=rows, bytes=bytes_, direction=direction)

    assert us(2**17, 2) == pytest.approx(1.5 * us(2**12, 2), rel=0.1)
    assert us(2**17, 2, "backward") == pytest.approx(us(2**12, 2, "backward"), rel=0.1)
    assert us(2**17, 1) == pytest.approx(us(2**12, 1), rel=0.1)


def test_a_compiled_softmax_takes_half_a_clock_an_element():
    """A loss over 50,304 tokens (modded-nanogpt, H100): 1,430 us of which its squashed logits take some, 1,211 back."""
    loss = {"family": "softmax", "part": "fused", "dtype": "bf16", "rows": 16384, "cols": 50304, "blocks": 16384}
    logits = 2 * 16384 * 50304
    assert law_us(H100, **loss, bytes=logits) == pytest.approx(1430, rel=0.2)
    assert law_us(H100, **loss, bytes=2 * logits, direction="backward") == pytest.approx(1211, rel=0.2)


@pytest.mark.parametrize("family", ["softmax", "norm", "reduction"])
def test_a_generated_reduction_takes_no_longer_to_start_than_other_generated_kernels(family: str):
    """Those under 5 us take 1.9 to 2.9 in traces of an H100, an RTX 3060 and an RTX PRO 6000."""
    few = {"dtype": "bf16", "rows": 64, "cols": 64, "bytes": 2**14}
    generated, own = (law_us(H100, family=family, part=part, **few) for part in ("fused", None))
    assert 1.9 < generated < 2.9
    assert generated < own


def test_an_rms_norm_has_fewer_instructions_than_a_layer_norm_where_these_are_the_limit():
    """Published times: 50 us on a GB200, which is near what its memory takes; a B200's layer norm 63 for half of it."""
    norm = {"family": "norm", "dtype": "bf16", "rows": 16384, "cols": 4096, "bytes": 4 * 16384 * 4096}
    b200 = load_gpu("b200")
    squares_us, rows_us = (law_us(b200, **norm, part=part) for part in ("squares", "rows"))
    assert squares_us < 0.7 * rows_us
    assert law_us(b200, **norm, part="squares", direction="backward") > squares_us


def test_a_librarys_norm_is_a_plain_pass_over_its_bytes_and_its_gradient_a_fifth_more():
    """cuDNN's RMS norm of 16,384 rows of 4,096 in bf16 takes 72 us on an H200, of its gradient both kernels 106."""
    h200, elements = load_gpu("h200-sxm"), 16384 * 4096
    norm = {"family": "norm", "dtype": "bf16", "rows": 16384, "cols": 4096, "part": "library"}
    assert law_us(h200, **norm, bytes=4 * elements) == pytest.approx(72, rel=0.1)
    gradient = {**norm, "direction": "backward", "bytes": 6 * elements}
    plain_us = law_us(h200, **{**gradient, "part": "scaling"})
    assert 1.1 * plain_us < law_us(h200, **gradient) < 1.2 * plain_us
    assert law_us(h200, **gradient) == pytest.approx(106, rel=0.15)


def test_a_norm_in_parts_reads_its_input_once_for_sums_and_once_to_scale_it():
    elements = 2**30
    norm = {"family": "norm", "dtype": "fp32", "rows": 2**12, "cols": 2**18}
    once_us = 4 * elements / (H100.bandwidth_gbps * 1e3)
    assert 1 < law_us(H100, **norm, part="sums", bytes=4 * elements) / once_us < 2
    assert 1 < law_us(H100, **norm, part="scaling", bytes=8 * elements) / (2 * once_us) < 1.2


def test_a_convolution_of_three_channels_loads_them_one_by_one_on_nvidias_gpus():
    """16x16 patches of 224x224 images in bf16, which took 863 us on an H100; 768 = 3 x 16 x 16."""
    patches = {"family": "conv", "dtype": "bf16", "direction": "forward", "m": 128 * 196, "n": 768, "k": 768}
    assert law_us(H100, **patches, channels=3) > 3 * law_us(H100, **patches, channels=8)
    assert law_us(MI300X, **patches, channels=3) == law_us(MI300X, **patches, channels=8)
    data_gradient = patches | {"direction": "dgrad"}
    assert law_us(H100, **data_gradient, channels=3) == law_us(H100, **data_gradient, channels=8)


V100 = load_gpu("v100-pcie-32gb")


def convolution(images: int, edge: int, channels: int, filters: int, direction: str = "forward") -> dict[str, object]:
    """A 3x3 one at every pixel, in fp32."""
    pixels, sizes = images * edge**2, {"channels": channels, "height": edge, "width": edge}
    m, n, k = {
        "forward": (pixels, filters, 9 * channels),
        "dgrad": (pixels, 9 * channels, filters),
        "wgrad": (filters, 9 * channels, pixels),
    }[direction]
    moved = 4 * (pixels * (channels + filters) + 9 * channels * filters)
    work = {"family": "conv", "dtype": "fp32", "winograd": True, "direction": direction}
    return work | sizes | {"m": m, "n": n, "k": k, "bytes": moved}


def test_winograds_algorithm_takes_less_than_the_product_that_a_convolution_implies():
    large = convolution(64, 56, 256, 256)
    winograd_us, product_us = law_us(V100, **large), law_us(V100, **large | {"winograd": False})
    assert bound_of(V100, large) < winograd_us < product_us / 2.25


@pytest.mark.parametrize("direction", ["dgrad", "wgrad"])
def test_a_convolutions_gradients_take_about_its_forward_time(direction):
    forward_us = law_us(V100, **convolution(64, 56, 256, 256))
    assert law_us(V100, **convolution(64, 56, 256, 256, direction)) == pytest.approx(forward_us, rel=0.25)


def test_images_fill_tiles_of_4_by_4_outputs():
    """Images of 5 by 5 fill 25 outputs of 64, those of 8 by 8 all."""
    filled_us, wasted_us = (law_us(V100, **convolution(64, edge, 512, 512)) for edge in (8, 5))
    assert wasted_us == pytest.approx(filled_us, rel=0.1)


def test_transformed_products_are_as_large_for_17_images_as_for_32():
    few_us, many_us = (law_us(V100, **convolution(images, 8, 2048, 2048)) for images in (17, 32))
    assert 0.8 * many_us < few_us <= many_us


def test_images_of_unknown_size_count_as_whole_tiles():
    known = convolution(64, 8, 512, 512)
    unknown = {name: value for name, value in known.items() if name not in ("channels", "height", "width")}
    assert law_us(V100, **unknown) == pytest.approx(law_us(V100, **known), rel=0.05)


@pytest.mark.parametrize(
    "op",
    [
        {"family": "gemm", "dtype": "bf16", "m": 1024, "n": 1024, "k": 4096},
        {"family": "attention", "dtype": "bf16", "batch": 8, "heads": 32, "q_len": 1, "kv_len": 8192, "head_dim": 128},
    ],
)
def test_kernels_that_share_an_op_take_its_time_however_it_is_shared(op):
    rows = pl.DataFrame([op | {"share": share} for share in (0.1, 0.9, 0.5, 0.5)])
    times_us = predict(rows, H100)["time_us"]
    assert times_us[0] + times_us[1] == pytest.approx(times_us[2] + times_us[3])


def test_a_weights_gradient_is_split_as_deep_as_the_gpu_is_wide():
    """Its 9 to 36 tiles leave most of 132 SMs idle, and sixteen times as many would come in two rounds."""
    gradient = {"family": "conv", "dtype": "fp16", "direction": "wgrad", "m": 128, "n": 1152, "k": 6_422_528}
    gradient["bytes"] = 2 * 2 * 128 * 6_422_528
    forward = gradient | {"direction": "forward", "m": 6_422_528, "n": 128, "k": 1152}
    assert law_us(H100, **gradient, channels=128) < 2 * law_us(H100, **forward, channels=128)


def test_attention_to_fewer_keys_than_a_tile_has_takes_as_long_as_to_a_tile():
    """4096 queries of 8 heads and 1024 images to 8 keys, which took 23.7 ms in fp32 on an A100, tiles of 64 keys."""
    few = {"family": "attention", "dtype": "3xtf32", "batch": 1024, "heads": 8, "head_dim": 16, "q_len": 4096}
    a100 = load_gpu("a100-sxm-40gb")
    times_us = [law_us(a100, **few, kv_len=keys, bytes=2**30) for keys in (1, 8, 64)]
    assert times_us[0] == pytest.approx(times_us[1], rel=0.01) == pytest.approx(times_us[2], rel=0.1)
    assert times_us[1] == pytest.approx(23_700, rel=0.4)


def test_attention_in_fp32_is_three_products_in_tf32_and_tiled_however_few_the_queries():
    few = {"family": "attention", "batch": 64, "heads": 8, "head_dim": 64, "q_len": 8, "kv_len": 4096}
    table = prepare_kernels(
        pl.DataFrame([few | {"dtype": "3xtf32"}, few | {"dtype": "bf16"}]), derive_hardware(load_gpu("a100-sxm-80gb"))
    )
    assert table["law"].to_list() == ["encoder", "decode"]
    assert load_gpu("a100-sxm-80gb").peak_flops("3xtf32") == load_gpu("a100-sxm-80gb").peak_flops("tf32") / 3
    volta = prepare_kernels(pl.DataFrame([few | {"dtype": "3xtf32"}]), derive_hardware(load_gpu("v100-sxm-32gb")))
    assert volta.select("dtype", "law").row(0) == ("fp32", "encoder")


def test_a_product_by_a_vector_goes_through_the_matrix_once():
    for m, n in ((1, 16384), (16384, 1)):
        vector = {"family": "gemm", "dtype": "fp32", "m": m, "n": n, "k": 16384}
        assert law_us(H100, **vector) == pytest.approx(4 * 2**28 / (0.85 * H100.bandwidth_gbps * 1e3), rel=0.15)


def test_few_rows_use_as_many_sms():
    logits = {"family": "softmax", "dtype": "fp32", "cols": 131072}
    few, many = (law_us(H100, **logits, rows=rows, bytes=8 * rows * 131072) for rows in (11, 1100))
    assert few > 0.05 * many


def test_a_row_larger_than_a_blocks_shared_memory_is_read_three_times():
    logits = {"family": "softmax", "dtype": "fp32", "rows": 2**13, "cols": 2**17, "flops": 5 * 2**30, "bytes": 2**33}
    read_and_written_us = 4 * 2**32 / (H100.bandwidth_gbps * 1e3)
    assert law_us(H100, **logits) == pytest.approx(read_and_written_us / 0.93, rel=0.1)


def test_a_block_holds_a_larger_row_on_amds_gpus():
    def us_per_byte(gpu, kilobytes):
        softmax = {"family": "softmax", "dtype": "fp32", "rows": 2**14, "cols": kilobytes * 256}
        size = kilobytes * 2**25
        return law_us(gpu, **softmax, flops=5 * size // 8, bytes=size) / size

    assert us_per_byte(MI300X, 60) == pytest.approx(us_per_byte(MI300X, 44), rel=0.05)
    assert us_per_byte(H100, 60) > 1.1 * us_per_byte(H100, 44)


def test_softmax_works_less_for_an_element_on_its_way_back():
    rows = {"family": "softmax", "dtype": "bf16", "rows": 2**14, "cols": 4096, "flops": 5 * 2**26}
    forward = law_us(H100, **rows, bytes=2 * 2**27)
    assert law_us(H100, **rows, bytes=3 * 2**27, direction="backward") < 0.8 * forward


def test_check_bits_in_the_memory_slow_what_is_written_not_what_is_read():
    without = load_gpu("l40s")
    beside = replace(without, inline_ecc=False)
    large = {"rows": 2**16, "cols": 4096, "bytes": 2**31, "dtype": "fp32", "flops": 2**28}
    slower = law_us(without, family="elementwise", **large) / law_us(beside, family="elementwise", **large)
    assert slower == pytest.approx(1 / INLINE_ECC_BANDWIDTH_FRACTION, rel=0.02)
    copy = {"family": "memcpy", "bytes": 2**30, "copy_kind": "DtoD"}
    assert law_us(without, **copy) / law_us(beside, **copy) == pytest.approx(
        1 / INLINE_ECC_BANDWIDTH_FRACTION, rel=0.01
    )
    read = {"family": "gemm", "dtype": "bf16", "m": 1, "n": 16384, "k": 16384}
    assert law_us(without, **read) == law_us(beside, **read)


def test_a_norm_in_half_precision_takes_half_as_long():
    single, half = (
        law_us(H100, family="norm", dtype=dtype, rows=2**16, cols=4096, flops=2**31, bytes=2 * size * 2**28)
        for dtype, size in (("fp32", 4), ("bf16", 2))
    )
    assert half / single == pytest.approx(0.5, rel=0.05)


def test_a_kernel_that_moves_a_part_of_its_ops_bytes_takes_that_part_of_the_time():
    foreach = {"family": "optimizer", "dtype": "fp32", "bytes": 8e9}
    whole = predict(pl.DataFrame([foreach]), H100)["time_us"][0]
    part = predict(pl.DataFrame([{**foreach, "share": 0.25}]), H100)["time_us"][0]
    assert part == pytest.approx(whole / 4, rel=0.05)


def test_a_kernel_of_a_product_that_reads_its_weights_takes_its_part_of_the_time():
    product = {"family": "gemm", "dtype": "bf16", "m": 16, "n": 16384, "k": 16384}
    gpu = derive_hardware(H100)
    table = prepare_kernels(pl.DataFrame([product, {**product, "share": 0.5}]), gpu)
    constants = SHIPPED.get_law("gemm half").compute_constants(gpu)
    terms = LAWS["gemm half"].evaluate(
        build_law_inputs(table).to_columns(gpu), build_law_inputs(table).share, gpu, constants
    )
    assert terms.memory_us[1] == pytest.approx(terms.memory_us[0] / 2)
    assert terms.compute_us[1] == pytest.approx(terms.compute_us[0] / 2)


def test_overlap_is_the_longer_of_two_unequal_times_and_more_than_either_of_two_equal_ones():
    assert combine_overlapped_us(np.array([100.0]), np.array([1.0]))[0] == pytest.approx(100, rel=1e-6)
    assert combine_overlapped_us(np.array([1.0]), np.array([1.0]))[0] == pytest.approx(2**0.25)


def test_a_product_by_hand():
    # 8192^3 in bf16 at 989.4 TFLOP/s; three quarters to nine tenths of the peak is what cuBLAS reaches.
    bound = 2 * 8192**3 / 989.4e6
    assert bound / 0.9 < law_us(H100, family="gemm", dtype="bf16", m=8192, n=8192, k=8192) < bound / 0.55


def test_the_bound_by_hand():
    target = derive_hardware(H100)
    product = {"family": "gemm", "dtype": "bf16", "m": 4096, "n": 4096, "k": 4096}
    rows = [
        prepare_kernels(pl.DataFrame([row])) for row in (product, {"family": "norm", "dtype": "fp32", "bytes": 1e9})
    ]
    bounds = [compute_bound_us(row["law"][0], build_law_inputs(row).to_columns(target), target)[0] for row in rows]
    assert bounds == pytest.approx([2 * 4096**3 / 989.4e6, 1e9 / 3352e3], rel=1e-3)


def test_what_fits_the_cache_is_bound_by_the_cache():
    target = derive_hardware(H100)
    cold, warm = compute_memory_bound_us(np.array([1e9, 1e6]), target)
    assert cold == pytest.approx(1e9 / 3352e3)
    assert warm < 1e6 / 3352e3 / 2


def decode_us(gpu: str, framework: str | None = None, **columns: object) -> float:
    shape = {
        "family": "attention",
        "dtype": "bf16",
        "q_len": 1,
        "head_dim": 128,
        "causal": True,
        "framework": framework,
    }
    target = derive_hardware(load_gpu(gpu))
    table = prepare_kernels(pl.DataFrame([shape | columns], infer_schema_length=None), target)
    weights = SHIPPED.get_law("decode").compute_constants(target, table["framework"].to_numpy().astype(object))
    return float(LAWS["decode"].terms(build_law_inputs(table).to_columns(target), target, weights).time_us[0])


def test_heads_that_are_decoded_one_by_one_read_their_keys_again():
    shape = {"batch": 64, "kv_heads": 1, "kv_len": 8192}
    assert decode_us("h100-sxm", "trtllm", **shape, heads=48) > 5 * decode_us("h100-sxm", "trtllm", **shape, heads=32)
    assert decode_us("h100-sxm", "vllm", **shape, heads=48) < 2 * decode_us("h100-sxm", "vllm", **shape, heads=32)
    window = {"batch": 64, "kv_heads": 8, "heads": 64, "kv_len": 8192, "window": 4096}
    assert decode_us("l40s", "vllm", **window) > 2 * decode_us("l40s", "vllm", **window | {"kv_dtype": "fp8"})
    assert decode_us("l40s", "fa2", **window) > 1.5 * decode_us("l40s", "fa2", **window | {"kv_len": 4096, "window": 0})


def test_a_kv_cache_that_fits_the_cache_is_read_at_its_rate_and_one_that_does_not_at_the_memorys():
    # 96 MiB on the L40S; 2 x 128 x 8 x 2 bytes a token, 64 tokens in a MiB of keys, 64 of values.
    def gbps(mib: int) -> float:
        return mib * 2**20 / decode_us("l40s", batch=16, heads=32, kv_heads=8, kv_len=mib * 16) / 1e3

    assert gbps(80) > 1.5 * 864
    assert gbps(160) < 864
    assert gbps(1600) < 864


def test_latent_attention_pads_heads_to_the_rows_of_a_matrix_instruction() -> None:
    """One head takes as long as 64 where the arithmetic of 64 rows takes longest: 64 x 2,048 keys in fp8."""
    shape = {"family": "attention", "dtype": "fp8", "batch": 64, "kv_heads": 1, "q_len": 1, "kv_len": 2048}
    latent = shape | {"head_dim": 544, "cache_width": 576, "causal": False}
    gpu = load_gpu("h200-sxm")
    one, many = (law_us(gpu, **latent, heads=heads) for heads in (1, 64))
    assert many == pytest.approx(one, rel=0.05)
    assert law_us(gpu, **latent, heads=128) > 1.2 * many


def test_engines_read_a_latent_cache_once_for_all_heads() -> None:
    shape = {"family": "attention", "dtype": "bf16", "batch": 32, "heads": 128, "kv_heads": 1, "q_len": 1}
    latent = shape | {"kv_len": 8192, "head_dim": 544, "cache_width": 576, "causal": False}
    rows = pl.DataFrame([latent | {"framework": engine} for engine in ("vllm", "sglang", "trtllm", None)])
    predicted = predict(rows, "h200-sxm")
    assert (predicted["time_us"] < 4 * predicted["bound_us"]).all()


@pytest.mark.parametrize(
    ("slug", "ratio"), [("mi300x", 1 + 2614.9 / 163.4 / 128), ("mi355x", 1 + 5033.2 / 157.3 / 128), ("h100-sxm", 1.0)]
)
def test_scales_of_blocks_take_a_part_of_amds_rate(slug: str, ratio: float):
    gpu, law = derive_hardware(load_gpu(slug)), LAWS["gemm fp8"]
    constants = {name: median for name, (median, _) in law.priors.items()}
    compute = {}
    for dtype in ("fp8", "fp8_block"):
        row = {"family": "gemm", "dtype": dtype, "m": 65536, "n": 16384, "k": 65536}
        inputs = build_law_inputs(prepare_kernels(pl.DataFrame([row]), gpu))
        # Without what feeds the units, which takes as long in either format.
        bare = constants | {"feed": 1e6, "latency": 1e-6}
        compute[dtype] = law.terms(inputs.to_columns(gpu), gpu, bare).compute_us[0]
    assert compute["fp8_block"] / compute["fp8"] == pytest.approx(ratio, rel=1e-3)


@pytest.mark.parametrize(("slug", "ratio"), [("mi300x", 2**0.5), ("mi210", 1.0), ("h100-sxm", 1.0)])
def test_more_lanes_shorten_amds_softmax(slug: str, ratio: float):
    gpu, law = derive_hardware(load_gpu(slug)), LAWS["softmax"]
    row = {"family": "softmax", "dtype": "bf16", "rows": 82960, "cols": 5185, "bytes": 4.0 * 82960 * 5185}
    columns = build_law_inputs(prepare_kernels(pl.DataFrame([row]), gpu)).to_columns(gpu)
    constants = {name: median for name, (median, _) in law.priors.items()} | {"element": 20.0}
    alike = compute_row_terms(columns, gpu, constants).compute_us[0]
    assert alike / law.terms(columns, gpu, constants).compute_us[0] == pytest.approx(ratio, rel=3e-3)


def test_a_sequence_in_chunks_takes_its_turn_however_few_heads_there_are():
    one = {"family": "linear_attention", "part": "chunks", "dtype": "bf16", "batch": 1, "q_len": 64000, "cols": 128}
    one |= {"heads": 1, "kv_heads": 1, "head_dim": 128, "bytes": 1.0, "flops": 1.0}
    four = one | {"heads": 4}
    assert law_us(H100, **one) == pytest.approx(law_us(H100, **four), rel=0.01)
    assert law_us(H100, **one | {"q_len": 6400}) < 0.2 * law_us(H100, **one)


def test_sparse_attention_of_a_query_takes_as_long_as_of_one_for_each_sm():
    sparse = {"family": "attention", "part": "sparse", "dtype": "bf16", "batch": 1, "kv_len": 2048, "window": 2048}
    sparse |= {"heads": 64, "kv_heads": 1, "head_dim": 544, "cache_width": 576, "causal": False}
    alone, full, twice = (law_us(H100, **sparse, q_len=queries) for queries in (1, 132, 1320))
    assert alone == pytest.approx(full, rel=0.3)
    assert twice > 5 * full
