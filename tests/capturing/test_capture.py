"""Programs captured without a GPU, and what is predicted of them."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit as tk
from tests.codes import has_code
from tracekit.cli.app import main
from tracekit.errors import CaptureError, RequestError

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from predictors import load_gpu  # noqa: E402
from tracekit.capturing import CapturedProgram  # noqa: E402
from tracekit.capturing.largest_batch import MAX_BATCH, find_largest_batch  # noqa: E402
from tracekit.capturing.load import load_program  # noqa: E402
from tracekit.capturing.predict import LAUNCH_US, run_in_order  # noqa: E402
from tracekit.capturing.request import CaptureRequest, answer_capture  # noqa: E402
from tracekit.prediction.memory import USABLE_MEMORY_FRACTION  # noqa: E402

WIDTH, TOKENS, BATCH = 256, 128, 4
PROGRAM = """
import torch
from torch import nn

WIDTH = 64


def make():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()), torch.zeros(8, WIDTH)


def broken():
    raise ValueError("no such thing")


def alone():
    return nn.Linear(2, 2)


class Reads(nn.Module):
    def forward(self, x):
        return x * float(x.sum().item())


def reading():
    return Reads(), (torch.zeros(4),)


def nothing():
    return (lambda x: x), torch.zeros(4)
"""


class Block(nn.Module):
    """Attention and an MLP behind norms."""

    def __init__(self, heads: int = 4, kv_heads: int = 4) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, WIDTH // heads
        self.norm, self.rms = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, (heads + 2 * kv_heads) * self.size)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the hidden states behind it."""
        heads = self.qkv(self.norm(x)).unflatten(-1, (-1, self.size)).transpose(1, 2)
        query, key, value = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, mask, is_causal=mask is None, enable_gqa=self.heads != self.kv_heads
        )
        x = x + mixed.transpose(1, 2).flatten(2)
        return x + self.down(functional.gelu(self.up(self.rms(x))))


def build(dtype: torch.dtype = torch.bfloat16, **options: int) -> tuple[nn.Module, Tensor]:
    """Build a block and its input, both without data."""
    with torch.device("meta"):
        return Block(**options).to(dtype), torch.empty(BATCH, TOKENS, WIDTH, dtype=dtype)


def count(program: CapturedProgram) -> dict[str, int]:
    """Count the kernels by family."""
    return dict(program.kernels.group_by("family").len().rows())


def test_a_forward_pass_has_the_kernels_of_its_ops() -> None:
    program = tk.capture(*build())
    families = count(program)
    assert (families["gemm"], families["attention"], families["norm"]) == (3, 1, 2)
    first = program.kernels.filter(pl.col("family") == "gemm").row(0, named=True)
    assert (first["m"], first["n"], first["k"], first["dtype"]) == (BATCH * TOKENS, 3 * WIDTH, WIDTH, "bf16")
    assert program.parameters == sum(one.numel() for one in build()[0].parameters())
    assert program.parameter_bytes == 2 * program.parameters
    assert not program.trains


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
    plain, mixed = (tk.capture(*build(torch.float32), autocast=dtype) for dtype in (None, "bf16"))
    dtypes = [
        {name: set(one.kernels.filter(pl.col("family") == name)["dtype"]) for name in ("gemm", "attention")}
        for one in (plain, mixed)
    ]
    assert dtypes[0]["gemm"] == {"fp32"}
    assert dtypes[1] == {"gemm": {"bf16"}, "attention": {"bf16"}}
    assert mixed.kernels.height > plain.kernels.height  # casts


def test_functions_are_as_before_afterwards() -> None:
    before = functional.scaled_dot_product_attention, functional.linear, torch.matmul, Tensor.__matmul__
    tk.capture(*build(), autocast="fp16")
    with pytest.raises(CaptureError):
        tk.capture(lambda x: x.nonexistent, build()[1], autocast="fp16")
    assert before == (functional.scaled_dot_product_attention, functional.linear, torch.matmul, Tensor.__matmul__)


@pytest.mark.parametrize(
    ("dtype", "masked", "kv_heads", "kernel"),
    [
        (torch.bfloat16, False, 4, "flash_fwd"),
        (torch.bfloat16, False, 2, "flash_fwd"),
        (torch.bfloat16, True, 4, "fmha_cutlass"),
        (torch.bfloat16, True, 2, "fmha_cutlass"),
        (torch.float32, False, 4, "fmha_cutlass"),
    ],
)
def test_attention_is_what_cuda_would_choose(dtype: torch.dtype, masked: bool, kv_heads: int, kernel: str) -> None:
    model, x = build(dtype, kv_heads=kv_heads)
    mask = (torch.ones(BATCH, 1, TOKENS, TOKENS, dtype=torch.bool, device="meta"),) if masked else ()
    found = tk.capture(model, x, *mask).kernels.filter(pl.col("family") == "attention")
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
    (row,) = tk.capture(multiply, *operands).kernels.to_dicts()
    assert row["family"] == "gemm"
    assert 2 * (row["batch"] or 1) * row["m"] * row["n"] * row["k"] == flops


def test_grouped_products_of_experts_are_products() -> None:
    """8,192 rows over eight experts, whose weights are 4,096 x 1,024."""
    x, weights = (torch.empty(shape, device="meta", dtype=torch.bfloat16) for shape in ((8192, 4096), (8, 4096, 1024)))
    ends = torch.empty(8, device="meta", dtype=torch.int32)
    (row,) = tk.capture(torch._grouped_mm, x, weights, ends).kernels.to_dicts()
    assert row["family"] == "gemm"
    assert row["batch"] * row["m"] * row["n"] * row["k"] == 8192 * 4096 * 1024


def test_what_a_library_works_out_is_of_unknown_work() -> None:
    program = tk.capture(torch.linalg.inv, torch.empty(512, 512, device="meta"))
    (found,) = tk.predict_captured(program, gpu="h100-sxm")
    assert found.unknown_pct > 0


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_refused(layer: type[nn.Module]) -> None:
    """PyTorch runs hundreds of kernels for them here, cuDNN a few."""
    with torch.device("meta"):
        model, x = layer(8, 8), torch.empty(4, 2, 8)
    with pytest.raises(CaptureError, check=has_code("recurrence-unknown")):
        tk.capture(model, x)


def test_dropout_is_one_kernel() -> None:
    x = torch.empty(64, 64, device="meta")
    trained = tk.capture(lambda y: functional.dropout(y, 0.1, True), x)
    assert trained.kernels["op"].to_list() == ["aten::native_dropout"]


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


def test_kernels_start_when_launched_and_when_the_one_before_has_ended() -> None:
    """Launches at 15, 25 and 35 us; the second kernel waits for the first, the third for neither."""
    assert run_in_order(np.array([1.0, 1.0, 1.0]), 10.0) == LAUNCH_US + 30 + 1
    assert run_in_order(np.array([50.0, 5.0, 5.0]), 10.0) == LAUNCH_US + 10 + 60
    assert run_in_order(np.array([1.0, 40.0, 5.0]), 10.0) == LAUNCH_US + 20 + 45
    assert run_in_order(np.array([3.0, 4.0]), 0.0) == LAUNCH_US + 7


@given(times=st.lists(st.floats(0, 1e4), min_size=1, max_size=30), launch_us=st.floats(0, 100))
def test_a_stream_runs_in_order_as_a_loop_would(times: list[float], launch_us: float) -> None:
    end = 0.0
    for number, us in enumerate(times, 1):
        end = max(end, number * launch_us + LAUNCH_US) + us
    assert run_in_order(np.array(times), launch_us) == pytest.approx(end)


def test_a_large_step_is_the_gpus_and_a_small_one_the_hosts() -> None:
    with torch.device("meta"):
        large = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(4))).bfloat16()
        x = torch.empty(16384, 8192, dtype=torch.bfloat16)
    (found,) = tk.predict_captured(tk.capture(large, x), gpu="h100-sxm")
    assert found.low_us < found.step_us < found.high_us
    assert found.kernels_us == pytest.approx(found.step_us, rel=0.02)
    assert found.families[0][0] == "gemm"
    assert found.clock_pct < 95
    assert not found.is_host_bound
    assert 500 < found.power_w <= 700
    assert found.joules == pytest.approx(found.power_w * found.step_us / 1e6)
    small = tk.capture(*build())
    (eager,) = tk.predict_captured(small, gpu="h100-sxm")
    (graphed,) = tk.predict_captured(small, gpu="h100-sxm", cuda_graph=True)
    assert eager.is_host_bound
    assert graphed.step_us < eager.step_us / 3
    assert graphed.clock_pct == 100


def test_memory_worked_out_by_hand() -> None:
    """Two layers of 4 MiB with biases of 4 KiB; an input and three results of 16 MiB, two of them there at once."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
        x = torch.empty(4096, 1024)
    weights, rows = 2 * (4 * 1024 * 1024 + 4096), 16 * 2**20
    assert tk.capture(model, x).peak_bytes == weights + rows + 2 * rows
    trained = tk.capture(model, x, training=True, optimizer="sgd")
    assert trained.peak_bytes - tk.capture(model, x, training=True).peak_bytes >= weights
    (small,) = tk.predict_captured(replace(trained, peak_bytes=20 * 2**30), gpu="rtx-3080-10gb")
    (large,) = tk.predict_captured(replace(trained, peak_bytes=20 * 2**30), gpu="l4")
    assert (small.has_room, large.has_room) == (False, True)


def test_more_gpus_are_predicted_in_order() -> None:
    found = tk.predict_captured(tk.capture(*build()), gpu=["l40s", "b200"])
    assert [one.gpu for one in found] == ["l40s", "b200"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Write the file of programs."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_a_function_of_a_file_is_run_without_data(program: Path) -> None:
    loaded = load_program(f"{program}:make", batch=1, tokens=1, dtype="bf16", training=False)
    assert loaded.inputs[0].device.type == "meta"
    assert loaded.name == "program.py:make"
    assert str(program.parent) not in sys.path


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("{}", "program-malformed"),
        ("{}:", "program-malformed"),
        ("{}:3", "program-malformed"),
        ("{}:missing", "function-missing"),
        ("{}:broken", "program-unreadable"),
        ("{}:alone", "inputs-missing"),
        ("{}x.py:make", "program-unreadable"),
    ],
)
def test_what_names_no_program_is_refused(program: Path, name: str, code: str) -> None:
    with pytest.raises(CaptureError, check=has_code(code)):
        load_program(name.format(program), batch=1, tokens=1, dtype="bf16", training=False)


def test_a_config_needs_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(CaptureError, check=has_code("capture-needs-transformers")):
        load_program(str(tmp_path / "config.json"), batch=1, tokens=1, dtype="bf16", training=False)


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Run the command line; gives its exit code and what it wrote."""

    def invoke(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["tracekit", "capture", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return int(str(stop.value.code)), captured.out + captured.err

    return invoke


Command = Callable[..., tuple[int, str]]


def test_the_command_prints_each_gpu(program: Path, run_command: Command) -> None:
    code, shown = run_command(f"{program}:make", "--gpu", "h100-sxm", "--gpu", "l40s", "--train", "--optimizer", "sgd")
    assert code == 0, shown
    assert "h100-sxm" in shown
    assert "l40s" in shown
    code, shown = run_command(f"{program}:make", "--gpu", "h100-sxm", "--json")
    answer = json.loads(shown)
    assert answer["parameters"] == 64 * 64 + 64
    assert answer["targets"][0]["gpu"] == "h100-sxm"
    assert answer["targets"][0]["host_bound"] is True


@pytest.mark.parametrize(
    ("function", "code"), [("reading", "capture-failed"), ("nothing", "capture-empty"), ("missing", "function-missing")]
)
def test_the_command_says_in_one_line_what_is_wrong(
    program: Path, run_command: Command, function: str, code: str
) -> None:
    exit_code, shown = run_command(f"{program}:{function}", "--gpu", "h100-sxm")
    assert exit_code == 1
    assert f"[{code}]" in shown
    assert shown.strip().count("\n") == 0
    exit_code, shown = run_command(f"{program}:{function}")
    assert (exit_code, "[capture-target-needed]" in shown) == (2, True)


@given(first=st.integers(1, 30 * 2**30), each=st.integers(1, 2**33))
def test_the_largest_batch_is_the_last_that_fits(first: int, each: int) -> None:
    gpu = load_gpu("l4")
    usable = USABLE_MEMORY_FRACTION * gpu.memory_bytes
    empty = CapturedProgram("", pl.DataFrame(), 0, 0, 0, trains=False)

    def capture_batch(batch: int) -> CapturedProgram:
        return replace(empty, peak_bytes=first + (batch - 1) * each)

    largest = find_largest_batch(capture_batch, gpu)
    if largest is None:
        assert first > usable
    else:
        assert capture_batch(largest).peak_bytes <= usable
        assert largest == MAX_BATCH or capture_batch(largest + 1).peak_bytes > usable


@pytest.mark.parametrize(
    ("batch", "code"), [("max", "largest-batch-needs-config"), ("0", "batch-malformed"), ("two", "batch-malformed")]
)
def test_impossible_batches_are_refused(program: Path, batch: str, code: str) -> None:
    with pytest.raises(RequestError, check=has_code(code)):
        answer_capture(CaptureRequest(program=f"{program}:make", batch=batch), ["l4"])


def test_a_config_is_captured_at_its_batch_and_at_the_largest(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2, "n_head": 2}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    at_two = answer_capture(CaptureRequest(program=str(path), batch="2", tokens=128), ["l4"])
    assert (at_two.steps[0].batch, at_two.program.tokens) == (2, 256)
    largest = answer_capture(CaptureRequest(program=str(path), batch="max", tokens=1024, training=True), ["l4", "b200"])
    batches = [one.batch or 0 for one in largest.steps]
    assert 1 < batches[0] < batches[1]
    assert all(one.has_room for one in largest.steps)
