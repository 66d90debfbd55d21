"""What a framework makes of a program that trains."""

from dataclasses import replace
from pathlib import Path

import pytest

import tracekit as tk
from tracekit.capturing.options import CaptureOptions
from tracekit.errors import RequestError
from tracekit.models.captured import CaptureFacts
from tracekit.models.stacks import STACKS, UNKNOWN_HALF_WIDTH, UNKNOWN_STACK, find_stack
from tracekit.trace import Trace

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tracekit.capturing import program  # noqa: E402
from tracekit.capturing.steps import NamedProgram, capture_named  # noqa: E402

CONFIG = (
    '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,'
    '"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256}'
)


def capture(**options: str | None) -> Trace:
    """Return a training step of two layers."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.LayerNorm(512), nn.Linear(512, 64)).bfloat16()
        x = torch.empty(4096, 256, dtype=torch.bfloat16)
    return tk.capture(model, x, training=True, **options)


@pytest.mark.parametrize("stack", [None, *STACKS])
def test_a_stack_fills_in_what_the_options_leave_open(stack: str | None) -> None:
    found = CaptureOptions(train=True, stack=stack).follow_stack()
    known = STACKS[stack or "plain"]
    assert (found.compile, found.cuda_graph, found.optimizer) == (known.fuses, known.cuda_graph, known.optimizer)


def test_what_is_told_stays() -> None:
    asked = CaptureOptions(train=True, stack="hf", compile=True, cuda_graph=True, optimizer="sgd")
    assert asked.follow_stack() == asked
    assert CaptureOptions(stack="megatron").follow_stack().optimizer is None


def test_an_unknown_stack_widens_a_trained_config_alone(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = tmp_path / "config.json"
    config.write_text(CONFIG)
    told = {
        (train, stack): NamedProgram(str(config), CaptureOptions(train=train, seq=32, stack=stack))
        .capture_batch(None)
        .facts.stack
        for train in (False, True)
        for stack in (None, "plain")
    }
    assert told == {(False, None): "", (True, None): UNKNOWN_STACK, (False, "plain"): "plain", (True, "plain"): "plain"}
    assert find_stack(UNKNOWN_STACK).half_width == UNKNOWN_HALF_WIDTH
    assert find_stack("").half_width == find_stack("a later version's").half_width == 0


def test_megatron_fuses_and_launches_by_a_graph() -> None:
    """Its step has fewer kernels and hardly waits for the CPU."""
    plain, fused = (capture(stack=stack, optimizer="fused-adamw") for stack in ("plain", "megatron"))
    (of_plain,), (of_fused,) = (tk.predict(one, gpu="b200", host="typical").targets for one in (plain, fused))
    assert of_fused.kernels.height < of_plain.kernels.height
    assert of_fused.step.idle_us < of_plain.step.idle_us / 2


def test_a_stacks_ratio_and_width_are_in_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that take half as long again, and an error of 0.4 beside their own."""
    before = tk.predict(capture(stack="hf"), gpu="b200").targets[0].kernels
    monkeypatch.setitem(STACKS, "hf", type(STACKS["hf"])(optimizer="fused-adamw", time_ratio=1.5, half_width=0.4))
    found = tk.predict(capture(stack="hf"), gpu="b200").targets[0]
    ratio = (found.kernels["time_us"] / before["time_us"]).to_numpy()
    assert ratio == pytest.approx(1.5)
    above = (found.kernels["high_us"] / found.kernels["time_us"]).log().to_numpy()
    own = (before["high_us"] / before["time_us"]).log().to_numpy()
    assert above == pytest.approx((own**2 + 0.4**2) ** 0.5)
    assert "1.50 times" in " ".join(map(str, found.notes))


def test_an_unknown_name() -> None:
    with pytest.raises(RequestError, match="no known stack"):
        CaptureOptions(stack="deepspeed")


@pytest.mark.heavy
def test_exchanges_run_beside_products_but_for_their_first_piece(tmp_path: Path) -> None:
    """Of two ranks a half of each exchange is left."""
    pytest.importorskip("transformers")
    config = tmp_path / "config.json"
    config.write_text(CONFIG)
    left_us = {}
    for stack in ("hf", "megatron"):
        asked = CaptureOptions(train=True, seq=4096, stack=stack, compile=True, cuda_graph=True).follow_stack()
        trace, _ = capture_named(str(config), asked, None)
        (found,) = tk.predict(trace, cluster="8xh100-sxm", tp=2).targets
        left_us[stack] = found.step.exposed_comm_us
    assert left_us["megatron"] == pytest.approx(left_us["hf"] / 2, rel=0.02)
    assert left_us["hf"] > 0


@pytest.mark.parametrize(
    ("window", "shapes"), [(None, [[1, 4, 64, 16], [1, 2, 64, 16]]), (16, [[1, 16, 16, 16], [1, 8, 16, 16]])]
)
def test_a_window_is_as_much_work_as_blocks_of_its_size(window: int | None, shapes: list[list[int]]) -> None:
    from tracekit.capturing.fused_attention import attend_fused

    with torch.device("meta"):
        query, key, value = (torch.empty(1, heads, 64, 16, dtype=torch.bfloat16) for heads in (4, 2, 2))
    found = program.capture(lambda: attend_fused(nn.Module(), query, key, value, None, sliding_window=window)[0])
    (attention,) = (call for call in found.calls if "scaled_dot" in call.op)
    assert attention.dims[:2] == shapes


def test_megatron_fuses_attention_that_transformers_has_by_products_alone(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = tmp_path / "config.json"
    sizes = '"num_local_experts": 2, "num_experts_per_tok": 1, "head_dim": 16, "sliding_window": 16'
    config.write_text(CONFIG.replace("llama", "gpt_oss").replace("LlamaFor", "GptOssFor")[:-1] + f", {sizes}}}")
    found = {
        stack: NamedProgram(str(config), CaptureOptions(train=True, seq=32, stack=stack)).capture_batch(None)
        for stack in ("hf", "megatron")
    }
    kinds = {stack: {call.op for call in one.calls if "scaled_dot" in call.op} for stack, one in found.items()}
    assert not kinds["hf"]
    assert len(kinds["megatron"]) == 2
    assert found["megatron"].facts.attention == "sdpa"


@pytest.mark.parametrize(("stack", "wide"), [("hf", 0), ("torchtitan", 8), ("megatron", 8)])
def test_a_stack_keeps_wider_states_of_16_bit_parameters(stack: str, wide: int) -> None:
    """Of 1,000 parameters in bf16, 600 of which train: moments of 2 x 2 bytes each, and 8 more in fp32."""
    facts = CaptureFacts("l4", 1000, 2000, 5000, 9000, trains=True, state_bytes=2400, frozen_bytes=800)
    found = facts.on_stack(stack)
    grown = 600 * wide
    assert (found.state_bytes, found.held_bytes, found.peak_bytes) == (2400 + grown, 5000 + grown, 9000 + grown)
    assert found.stack == stack
    for other in (replace(facts, parameter_bytes=4000), replace(facts, state_bytes=1000)):
        assert other.on_stack(stack) == replace(other, stack=stack)
