"""Programs captured without a GPU: their kernels."""

from collections.abc import Callable

import polars as pl
import pytest

import tracekit as tk
from tests.codes import has_code
from tracekit.errors import CaptureError, RequestError

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.capturing.blocks import BATCH, TOKENS, WIDTH, build  # noqa: E402
from tracekit.run import prepare_run  # noqa: E402
from tracekit.trace import Trace  # noqa: E402


def tabulate(trace: Trace) -> pl.DataFrame:
    """Return the kernel table."""
    return prepare_run(trace).kernels


def count(trace: Trace) -> dict[str, int]:
    """Count the kernels by family."""
    return dict(tabulate(trace).group_by("family").len().rows())


def test_a_forward_pass_has_the_kernels_of_its_ops() -> None:
    trace = tk.capture(*build())
    families, facts = count(trace), trace.ranks[0].capture_facts
    assert facts is not None
    assert (families["gemm"], families["attention"], families["norm"]) == (3, 1, 2)
    first = tabulate(trace).filter(pl.col("family") == "gemm").row(0, named=True)
    assert (first["m"], first["n"], first["k"], first["dtype"]) == (BATCH * TOKENS, 3 * WIDTH, WIDTH, "bf16")
    assert facts.parameters == sum(one.numel() for one in build()[0].parameters())
    assert facts.parameter_bytes == 2 * facts.parameters
    assert not facts.trains


def test_training_has_a_backward_pass_of_twice_the_products_and_an_update() -> None:
    model, x = build()
    families = count(tk.capture(model, x, training=True))
    # The first layer's input needs no gradient, so one of the six products of the backward pass is missing.
    assert families["gemm"] in (8, 9)
    assert families["attention"] == 2
    assert "optimizer" not in families
    assert count(tk.capture(*build(), training=True, optimizer="adamw"))["optimizer"] > 1
    assert count(tk.capture(*build(), training=True, optimizer="fused-adamw"))["optimizer"] == 1


def test_the_loss_is_what_the_model_returns_or_names() -> None:
    class Out:
        def __init__(self, loss: Tensor) -> None:
            self.loss = loss

    def capture(finish: Callable[[Tensor], object]) -> dict[str, int]:
        model, x = build()
        return count(tk.capture(lambda y: finish(model(y).float().pow(2).mean()), x, training=True))

    assert capture(lambda loss: loss) == capture(Out) == capture(lambda loss: loss.backward())


def test_a_model_can_be_captured_again() -> None:
    model, x = build()
    first, second = (count(tk.capture(model, x, training=True)) for _ in range(2))
    assert first == second


def test_autocast_runs_products_in_half_and_norms_in_single_precision() -> None:
    plain, mixed = (tabulate(tk.capture(*build(torch.float32), autocast=dtype)) for dtype in (None, "bf16"))
    dtypes = [
        {name: set(one.filter(pl.col("family") == name)["dtype"]) for name in ("gemm", "attention")}
        for one in (plain, mixed)
    ]
    assert dtypes[0]["gemm"] == {"fp32"}
    assert dtypes[1] == {"gemm": {"bf16"}, "attention": {"bf16"}}
    assert mixed.height > plain.height  # casts


def test_functions_are_as_before_afterwards() -> None:
    before = functional.scaled_dot_product_attention, functional.linear, torch.matmul, Tensor.__matmul__
    tk.capture(*build(), autocast="fp16")
    with pytest.raises(CaptureError):
        tk.capture(lambda x: x.nonexistent, build()[1], autocast="fp16")
    assert before == (functional.scaled_dot_product_attention, functional.linear, torch.matmul, Tensor.__matmul__)


@pytest.mark.parametrize(
    ("dtype", "masked", "kv_heads", "kernel"),
    [
        (torch.bfloat16, False, 4, "sdpa_flash_fprop"),
        (torch.bfloat16, False, 2, "sdpa_flash_fprop"),
        (torch.bfloat16, True, 4, "fmha_cutlass"),
        (torch.bfloat16, True, 2, "fmha_cutlass"),
        (torch.float32, False, 4, "fmha_cutlass"),
    ],
)
def test_attention_is_what_cuda_would_choose(dtype: torch.dtype, masked: bool, kv_heads: int, kernel: str) -> None:
    model, x = build(dtype, kv_heads=kv_heads)
    mask = (torch.ones(BATCH, 1, TOKENS, TOKENS, dtype=torch.bool, device="meta"),) if masked else ()
    found = tabulate(tk.capture(model, x, *mask)).filter(pl.col("family") == "attention")
    assert found.height == 1
    assert kernel in found["name"][0]
    assert (found["heads"][0], found["q_len"][0], found["head_dim"][0]) == (4, TOKENS, WIDTH // 4)


@pytest.mark.parametrize(
    ("multiply", "shapes", "flops"),
    [
        (torch.mm, ((512, 256), (256, 1024)), 2 * 512 * 256 * 1024),
        (torch.bmm, ((8, 512, 256), (8, 256, 1024)), 2 * 8 * 512 * 256 * 1024),
        (torch.addmm, ((1024,), (512, 256), (256, 1024)), 2 * 512 * 256 * 1024),
        (torch.baddbmm, ((8, 512, 1024), (8, 512, 256), (8, 256, 1024)), 2 * 8 * 512 * 256 * 1024),
        (torch.mv, ((4096, 2048), (2048,)), 2 * 4096 * 2048),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_products_have_the_work_of_products(
    multiply: Callable[..., Tensor], shapes: tuple[tuple[int, ...], ...], flops: int
) -> None:
    operands = [torch.empty(shape, device="meta", dtype=torch.bfloat16) for shape in shapes]
    (row,) = tabulate(tk.capture(multiply, *operands)).to_dicts()
    assert row["family"] == "gemm"
    assert 2 * (row["batch"] or 1) * row["m"] * row["n"] * row["k"] == flops


def test_grouped_products_of_experts_are_products() -> None:
    """8,192 rows over eight experts, whose weights are 4,096 x 1,024."""
    x, weights = (torch.empty(shape, device="meta", dtype=torch.bfloat16) for shape in ((8192, 4096), (8, 4096, 1024)))
    ends = torch.empty(8, device="meta", dtype=torch.int32)
    (row,) = tabulate(tk.capture(torch._grouped_mm, x, weights, ends)).to_dicts()
    assert row["family"] == "gemm"
    assert row["batch"] * row["m"] * row["n"] * row["k"] == 8192 * 4096 * 1024


def test_what_a_library_works_out_is_of_unknown_work() -> None:
    trace = tk.capture(torch.linalg.inv, torch.empty(512, 512, device="meta"))
    assert "captured-work-unknown" in {warning.code for warning in tk.report(trace).warnings}


def test_dropout_is_one_kernel() -> None:
    x = torch.empty(64, 64, device="meta")
    trained = tk.capture(lambda y: functional.dropout(y, 0.1, True), x)
    assert tabulate(trained)["op"].to_list() == ["aten::native_dropout"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"optimizer": "lion", "training": True}, "optimizer-unknown"),
        ({"optimizer": "adamw"}, "optimizer-without-training"),
        ({"autocast": "fp8"}, "autocast-unknown"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], code: str) -> None:
    with pytest.raises(RequestError, check=has_code(code)):
        tk.capture(*build(), **options)  # type: ignore[arg-type]
