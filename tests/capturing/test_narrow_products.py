"""Programs whose linear layers and experts train with products of fewer than 16 bits."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tracekit.capturing.options import CaptureOptions
from tracekit.errors import CaptureError, RequestError
from tracekit.run import prepare_run

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from tracekit.capturing.program import tabulate_kernels  # noqa: E402
from tracekit.capturing.steps import NamedProgram  # noqa: E402

ROWS, WIDTH, INNER, HEAD = 512, 256, 1024, 100
OPERANDS = ROWS * WIDTH, WIDTH * INNER, ROWS * INNER, INNER * WIDTH, ROWS * WIDTH, ROWS * INNER
"""Elements that are cast: inputs and weights of both layers, forward, and the gradients of their results."""


class Mlp(nn.Module):
    """Two layers that share their input, one behind them, and a head."""

    def __init__(self, *, shares: bool = False) -> None:
        super().__init__()
        self.up, self.gate = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down, self.head = nn.Linear(INNER, WIDTH, bias=False), nn.Linear(WIDTH, HEAD, bias=False)
        self.shares = shares

    def forward(self, x: Tensor) -> Tensor:
        """Return what the head makes of it."""
        inner = torch.relu(self.up(x))
        return self.head(self.down(inner * self.gate(x) if self.shares else inner))


class Experts(nn.Module):
    """A product of experts behind a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(INNER, 8, bias=False)
        self.weight = nn.Parameter(torch.empty(4, WIDTH, INNER))

    def forward(self, x: Tensor) -> Tensor:
        """Return what the last layer makes of it."""
        ends = torch.empty(4, dtype=torch.int32)
        return self.last(torch._grouped_mm(self.first(x), self.weight, offs=ends))


def capture(
    precision: str | None, *, model: type[nn.Module] = Mlp, shares: bool = False, **options: bool
) -> pl.DataFrame:
    """Return the kernels of a training step, or of its forward pass alone."""
    with torch.device("meta"):
        built = (Mlp(shares=shares) if model is Mlp else model()).bfloat16()
        x = torch.empty(ROWS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    training = options.pop("training", True)
    return prepare_run(tk.capture(built, x, training=training, precision=precision, **options)).kernels


def list_products(kernels: pl.DataFrame, columns: Sequence[str] = ("m", "n", "k", "dtype")) -> list[tuple[object, ...]]:
    """List the products of a step, in order."""
    return kernels.filter(family="gemm").select(columns).rows()


def test_products_of_all_three_kinds_run_in_the_format() -> None:
    """Each layer's own product, and its input's and its weight's gradients; the head's stay in bf16."""
    assert list_products(capture("fp8")) == [
        (ROWS, INNER, WIDTH, "fp8"),
        (ROWS, WIDTH, INNER, "fp8"),
        (ROWS, HEAD, WIDTH, "bf16"),
        (HEAD, WIDTH, ROWS, "bf16"),
        (ROWS, WIDTH, HEAD, "bf16"),
        (ROWS, INNER, WIDTH, "fp8"),
        (WIDTH, INNER, ROWS, "fp8"),
        (ROWS, WIDTH, INNER, "fp8"),
        (INNER, WIDTH, ROWS, "fp8"),
    ]


@pytest.mark.parametrize(
    ("precision", "bytes_each"),
    [
        ("fp8", 2 * 2 + 2 * 1),
        ("fp8_rowwise", 2 + 2 * 1),
        ("fp8_delayed", 2 + 2 * 1),
        ("fp8_block", 2 + 2 * 1),
        ("mxfp8", 2 + 2 * (1 + 1 / 32)),
        ("nvfp4", 2 * 2 + 2 * (0.5 + 1 / 16)),
    ],
)
def test_each_operand_is_cast_once(precision: str, bytes_each: float) -> None:
    """A cast reads 2 bytes, once more for a scale of the tensor, and writes the format by rows and by columns."""
    kernels = capture(precision)
    cast = kernels.filter(op="tracekit::quantise")
    assert sorted(cast["bytes"].to_list()) == sorted(round(elements * bytes_each) for elements in OPERANDS)
    formats = {"fp8_rowwise": "fp8", "fp8_delayed": "fp8"}
    assert set(kernels.filter(family="gemm")["dtype"]) == {"bf16", formats.get(precision, precision)}


def test_kernels_of_a_compiled_step_find_the_largest_value_themselves() -> None:
    cast = capture("fp8", compile=True).filter(op="tracekit::quantise")
    assert cast["bytes"].sum() == 4 * sum(OPERANDS)


def test_an_input_that_layers_share_is_cast_once() -> None:
    alone = capture("fp8", training=False).filter(op="tracekit::quantise").height
    shared = capture("fp8", training=False, shares=True).filter(op="tracekit::quantise").height
    assert (alone, shared) == (4, 5)  # one more weight


def test_experts_run_in_the_format() -> None:
    columns = ("batch", "m", "n", "k", "dtype")
    found = list_products(capture("mxfp8", model=Experts), columns)
    assert [one for one in found if one[0] == 4] == [
        (4, ROWS // 4, INNER, WIDTH, "mxfp8"),
        (4, ROWS // 4, WIDTH, INNER, "mxfp8"),
        (4, WIDTH, INNER, ROWS // 4, "mxfp8"),
    ]


def test_sixteen_bits_and_tf32_are_what_autocast_and_tf32_are() -> None:
    with torch.device("meta"):
        x = torch.empty(ROWS, WIDTH)
        said = {name: tk.capture(Mlp(), x, precision=name) for name in ("bf16", "fp16", "tf32", None)}
    types = {name: set(prepare_run(one).kernels.filter(family="gemm")["dtype"]) for name, one in said.items()}
    assert types == {"bf16": {"bf16"}, "fp16": {"fp16"}, "tf32": {"tf32"}, None: {"fp32"}}


def test_a_model_is_as_before_afterwards() -> None:
    with torch.device("meta"):
        model, x = Mlp().bfloat16(), torch.empty(ROWS, WIDTH, dtype=torch.bfloat16)
    tk.capture(model, x, precision="fp8")
    assert set(prepare_run(tk.capture(model, x)).kernels.filter(family="gemm")["dtype"]) == {"bf16"}


def test_what_cannot_be_said() -> None:
    with torch.device("meta"):
        x = torch.empty(ROWS, WIDTH)
        with pytest.raises(RequestError, match="no format of products"):
            tk.capture(Mlp(), x, precision="int3")
        with pytest.raises(RequestError, match="as well"):
            tk.capture(Mlp(), x, precision="bf16", autocast="fp16")
        with pytest.raises(CaptureError, match="no linear layer"):
            tk.capture(lambda y: y @ y.T, x, precision="fp8")
        with pytest.raises(CaptureError, match="no linear layer"):
            tk.capture(nn.Linear(WIDTH, HEAD), x, precision="fp8")


def test_a_config_in_a_format(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512,'
        '"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000}'
    )
    found = {}
    for precision in ("nvfp4", "fp16", "tf32"):
        options = CaptureOptions(train=True, seq=128, precision=precision)
        program = NamedProgram(str(config), options).capture_batch(None)
        types = tabulate_kernels(program.calls).filter(family="gemm")["dtype"].value_counts()
        found[precision] = program.facts.precision, dict(types.rows())
    assert found == {
        "nvfp4": ("nvfp4", {"nvfp4": 2 * 7 * 3, "bf16": 3}),
        "fp16": ("", {"fp16": 2 * 7 * 3 + 3}),
        "tf32": ("", {"tf32": 2 * 7 * 3 + 3}),
    }
