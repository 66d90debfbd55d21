"""Which kernels ops launch, as traces of CUDA show it."""

from collections.abc import Callable

import polars as pl
import pytest

import tracekit as tk

pytestmark = pytest.mark.heavy

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from tracekit.run import prepare_run  # noqa: E402

CHANGES = ["nchwToNhwcKernel", "nhwcToNchwKernel"]


def tabulate(function: Callable[..., object], *inputs: Tensor, training: bool = False) -> pl.DataFrame:
    """Return the kernels of a function."""
    return prepare_run(tk.capture(function, *inputs, training=training)).kernels


def name_kernels(function: Callable[..., object], *inputs: Tensor, training: bool = False) -> list[str]:
    """Return the names of its kernels."""
    return tabulate(function, *inputs, training=training)["name"].to_list()


def make_images(channels_last: bool = False, dtype: torch.dtype = torch.float16) -> Tensor:
    images = torch.empty(8, 64, 28, 28, device="meta", dtype=dtype)
    return images.to(memory_format=torch.channels_last) if channels_last else images


def make_convolution(
    size: int = 3, dtype: torch.dtype = torch.float16, outputs: int = 128, groups: int = 1
) -> nn.Module:
    with torch.device("meta"):
        return nn.Conv2d(64, outputs, size, padding=size // 2, groups=groups).to(dtype)


@pytest.mark.parametrize("groups", [1, 16])
def test_cudnn_changes_how_images_lie_unless_their_channels_lie_side_by_side(groups: int) -> None:
    first, product, last, bias = name_kernels(make_convolution(groups=groups), make_images())
    assert [first, last] == CHANGES
    assert "implicit_gemm" in product
    assert "elementwise" in bias
    by_pixel = make_convolution(groups=groups).to(memory_format=torch.channels_last)
    assert len(name_kernels(by_pixel, make_images(channels_last=True))) == 2


def test_windows_of_a_pixel_are_products_of_either_layout_but_for_their_gradients() -> None:
    table = tabulate(make_convolution(1), make_images().requires_grad_(), training=True)
    changed = table.filter(pl.col("name").is_in(CHANGES))["op"].to_list()
    assert changed == ["aten::convolution_backward"] * 4


def test_depthwise_convolutions_have_kernels_of_either_layout() -> None:
    images = make_images().requires_grad_()
    names = name_kernels(make_convolution(outputs=64, groups=64), images, training=True)
    assert not set(CHANGES) & set(names)


def test_groups_of_48_channels_have_kernels_of_either_layout() -> None:
    images = torch.empty(8, 96, 28, 28, device="meta", requires_grad=True)
    with torch.device("meta"):
        names = name_kernels(nn.Conv2d(96, 96, 3, padding=1, groups=2), images, training=True)
    assert not set(CHANGES) & set(names)


def test_the_channels_stay_side_by_side_from_layer_to_layer() -> None:
    with torch.device("meta"):
        layers = [nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
        model = nn.Sequential(*layers, *layers).half().to(memory_format=torch.channels_last)
    names = name_kernels(model, make_images(channels_last=True), training=True)
    assert not set(CHANGES) & set(names)


def test_a_convolutions_gradients_have_their_changes_and_the_sum_of_the_bias() -> None:
    table = tabulate(make_convolution(), make_images().requires_grad_(), training=True)
    backward = table.filter(pl.col("op") == "aten::convolution_backward")["name"].to_list()
    assert backward.count(CHANGES[0]) == 3
    assert backward.count(CHANGES[1]) == 1
    sums = table.filter(pl.col("op") == "aten::sum").to_dicts()
    assert any(row["input_dims"].startswith("[[8,128,28,28]") for row in sums)


def test_a_gpu_without_tf32_needs_no_changes_for_fp32() -> None:
    trace = tk.capture(make_convolution(dtype=torch.float32), make_images(dtype=torch.float32))
    volta, ampere = (
        tk.predict(trace, gpu=gpu).targets[0].kernels["time_us"].to_list() for gpu in ("v100-sxm-16gb", "a100-sxm")
    )
    assert volta[0] == volta[2] == 0
    assert min(ampere) > 0


@pytest.mark.parametrize(
    ("place", "kernel"),
    [
        (lambda x: (x, x), "vectorized_elementwise_kernel"),
        (lambda x: (x.t(), x.t()), "vectorized_elementwise_kernel"),
        (lambda x: (x, x.t()), "elementwise_kernel"),
        (lambda x: (x[:, :512], x[:, :512]), "elementwise_kernel"),
        (lambda x: (x, x[:1]), "elementwise_kernel"),
    ],
    ids=["contiguous", "transposed", "one transposed", "part", "broadcast"],
)
def test_elementwise_kernels_vectorise_what_lies_alike(
    place: Callable[[Tensor], tuple[Tensor, Tensor]], kernel: str
) -> None:
    x = torch.empty(1024, 1024, device="meta")
    assert name_kernels(lambda y: torch.add(*place(y)), x) == [kernel]


def test_joins_move_16_bytes_at_once_where_their_parts_are_whole() -> None:
    x = torch.empty(64, 1024, device="meta")
    assert name_kernels(lambda y: torch.cat([y, y]), x) == ["CatArrayBatchedCopy_vectorized"]
    assert name_kernels(lambda y: torch.cat([y[:, ::2], y], 1), x) == ["CatArrayBatchedCopy"]


def test_gradients_of_parts_are_zeros_and_a_copy() -> None:
    x = torch.empty(16, 1024, 64, device="meta", requires_grad=True)
    table = tabulate(lambda y: y[:, 0].sin().sum(), x, training=True).filter(phase="backward")
    assert table["op"].to_list()[-2:] == ["aten::fill_", "aten::copy_"]
    assert table.filter(op="aten::fill_")["bytes"][-1] == 16 * 1024 * 64 * 4
    assert table.filter(op="aten::copy_")["bytes"][-1] == 2 * 16 * 64 * 4


def test_the_gradient_of_a_loss_begins_with_zeros_of_all_logits() -> None:
    logits = torch.empty(256, 32000, device="meta", requires_grad=True)
    labels = torch.empty(256, device="meta", dtype=torch.int64)
    table = tabulate(lambda x: functional.cross_entropy(x, labels), logits, training=True)
    assert table.filter(op="aten::fill_", phase="backward")["bytes"].max() == 256 * 32000 * 4


def test_the_gradient_of_an_embedding_begins_with_zeros_of_the_table() -> None:
    with torch.device("meta"):
        table = nn.Embedding(30000, 512)
    kernels = tabulate(table, torch.empty(64, device="meta", dtype=torch.int64), training=True)
    assert kernels.filter(op="aten::fill_", phase="backward")["bytes"].max() == 30000 * 512 * 4


def test_a_norm_of_rows_is_no_optimizer() -> None:
    with torch.device("meta"):
        norm = nn.RMSNorm(512)
    assert set(tabulate(norm, torch.empty(256, 512, device="meta"))["family"]) == {"norm"}


@pytest.mark.parametrize(("width", "kernel"), [(64, "sdpa_flash_fprop"), (128, "sdpa_flash_fprop"), (256, "flash_fwd")])
def test_wide_heads_are_flash_attentions(width: int, kernel: str) -> None:
    heads = [torch.empty(2, 4, 512, width, device="meta", dtype=torch.bfloat16) for _ in range(3)]
    (name,) = name_kernels(functional.scaled_dot_product_attention, *heads)
    assert kernel in name


def make_table(rows: int, bags: bool = False, **options: object) -> nn.Module:
    with torch.device("meta"):
        return (nn.EmbeddingBag if bags else nn.Embedding)(rows, 64, **options)  # type: ignore[operator]


def make_indices(*shape: int) -> Tensor:
    return torch.empty(shape, device="meta", dtype=torch.long)


@pytest.mark.parametrize(("rows", "passes"), [(255, 1), (256, 2), (65_535, 2), (65_536, 3), (10_000_000, 3)])
def test_an_embeddings_gradient_sorts_by_the_bits_of_its_rows(rows: int, passes: int) -> None:
    table = tabulate(make_table(rows), make_indices(8, 512), training=True)
    backward = table.filter(pl.col("op") == "aten::embedding_dense_backward")
    assert backward["name"].str.contains("Onesweep").sum() == passes
    assert backward["bytes"].null_count() == 0
    assert backward["name"].to_list()[-2:] == ["compute_grad_weight", "sum_and_scatter"]


@pytest.mark.parametrize(("indices", "kernels"), [(3072, 1), (3073, 13)])
def test_few_indices_are_added_up_by_one_kernel(indices: int, kernels: int) -> None:
    table = tabulate(make_table(255), make_indices(indices), training=True)
    assert table.filter(pl.col("op") == "aten::embedding_dense_backward").height == kernels


@pytest.mark.parametrize(("bags", "kernel"), [(100, "SingleTile"), (8192, "Onesweep")])
def test_a_bags_gradient_is_known_and_its_table_zeroed(bags: int, kernel: str) -> None:
    table = tabulate(make_table(100_000, bags=True, mode="sum"), make_indices(bags, 20), training=True)
    backward = table.filter(pl.col("op") == "aten::_embedding_bag_backward")
    assert backward["name"].str.contains(kernel).sum() == (8 if kernel == "Onesweep" else 1)
    assert backward["bytes"].null_count() == 0
    assert table.filter((pl.col("op") == "aten::fill_") & (pl.col("bytes") == 4 * 64 * 100_000)).height == 1


def test_a_report_tells_that_the_indices_are_assumed() -> None:
    def list_codes(table: nn.Module, training: bool, **known: float) -> set[str]:
        captured = tk.capture(table, make_indices(8192, 20), training=training)
        return {one.code for one in tk.report(captured, **known).warnings}

    table = make_table(100_000, bags=True, mode="sum")
    assert "indices-assumed" in list_codes(table, training=True)
    assert "indices-assumed" not in list_codes(table, training=False)
    assert "indices-assumed" not in list_codes(table, training=True, zipf=0.9)


def test_a_given_skew_narrows_the_interval() -> None:
    captured = tk.capture(make_table(100_000, bags=True, mode="sum"), make_indices(8192, 20), training=True)
    assumed, given = (tk.predict(captured, gpu="l4", **known)["l4"] for known in ({}, {"zipf": 1.05}))
    assert given.step.step_time_us == pytest.approx(assumed.step.step_time_us, rel=1e-6)
    assert assumed.low_us <= given.low_us
    assert given.high_us < assumed.high_us


def test_maxima_of_bags_have_other_gradients() -> None:
    table = tabulate(make_table(1000, bags=True, mode="max"), make_indices(8192, 20), training=True)
    assert table.filter(pl.col("op") == "aten::_embedding_bag_backward")["name"].to_list() == ["embedding_kernel"]
