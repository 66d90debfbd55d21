"""A program that never ran has no place where it ran: nothing is compared with it, and it has one time on each GPU."""

import json
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.codes import has_code
from tracekit import calibration
from tracekit.calibration import Calibration
from tracekit.errors import CaptureError, RequestError
from tracekit.messages import predictions as told
from tracekit.messages.predictions import CALIBRATION_USED
from tracekit.models.lookups import ZipfPattern
from tracekit.prediction.question import Question, RankBy, WholeRun
from tracekit.render import json as as_json
from tracekit.render import markdown, terminal
from tracekit.render.html import render_page
from tracekit.render.screen import as_text
from tracekit.render.sentences import choose_notes
from tracekit.reporting import build_prediction_report
from tracekit.reporting.tables import build_frames
from tracekit.request import PredictRequest, answers
from tracekit.workload.names.library import infer_library

torch = pytest.importorskip("torch")

from tracekit.capturing.load import pop_attention, pop_quantization  # noqa: E402
from tracekit.capturing.options import CaptureOptions  # noqa: E402
from tracekit.capturing.steps import (  # noqa: E402
    NamedProgram,
    capture_named,
    predict_steps,
)
from tracekit.capturing.timed_trace import CaptureSetting  # noqa: E402

PROGRAM = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class Hot(nn.Module):
    # Products that draw more than a GPU's limit, and an op of unknown work.
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(8192, 8192, bias=False, dtype=torch.bfloat16) for _ in range(4)))

    def forward(self, x):
        return torch.sort(self.layers(x)[0]).values


def hot(batch=4):
    return Hot(), torch.zeros(batch * 2048, 8192, dtype=torch.bfloat16)


class Attends(nn.Module):
    def forward(self, x, mask=None):
        return scaled_dot_product_attention(x, x, x, mask)


def attends():
    return Attends(), torch.zeros(2, 4, 256, 64, dtype=torch.bfloat16)


def attends_in_windows():
    return Attends(), torch.zeros(2, 4, 8, 256, 64, dtype=torch.bfloat16)


def attends_in_fp32():
    return Attends(), torch.zeros(2, 4, 256, 64)


def attends_with_mask():
    return Attends(), torch.zeros(2, 4, 256, 64, dtype=torch.bfloat16), torch.zeros(256, 256, dtype=torch.bfloat16)
"""
GPUS = ["h100-sxm", "l40s"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs") / "program.py"
    path.write_text(PROGRAM)
    return path


def predict(name: str, **asked):
    request = PredictRequest(**({"gpu": GPUS} | asked))
    trace, _ = capture_named(name, CaptureOptions(), None)
    return answers.predict(answers.measure(trace, request), request)


@pytest.fixture(scope="module")
def hot(program: Path):
    prices = {"h100-sxm": 3.0, "l40s": 1.0}
    return predict(f"{program}:hot", price=prices, steps_to_run=3600)


def test_the_step_on_its_own_gpu_is_the_captured_one(hot) -> None:
    """Also where power lowers the clock, and ops of unknown work are there."""
    here, there = hot.run.measured_step, hot["h100-sxm"].step
    assert "clock-lowered" in {note.code for note in hot["h100-sxm"].notes}
    assert there.step_time_us == pytest.approx(here.step_time_us, rel=1e-3)


def test_the_order_of_gpus_and_the_command_change_nothing(program: Path, hot) -> None:
    named = NamedProgram(f"{program}:hot", CaptureOptions())
    steps = {step.prediction.gpu: step.prediction for step in predict_steps(named, GPUS[::-1], None, cuda_graph=False)}
    for gpu in GPUS:
        assert (steps[gpu].step.step_time_us, steps[gpu].low_us, steps[gpu].high_us) == (
            hot[gpu].step.step_time_us,
            hot[gpu].low_us,
            hot[gpu].high_us,
        )


def test_the_captured_step_has_the_look_ups_that_are_asked_for() -> None:
    options = CaptureOptions()
    sample = Path(tracekit.__file__).parent.parent / "sample_traces" / "dlrm_dcnv2.json"
    request = PredictRequest(gpu="h100-sxm", zipf=1.2)
    trace, _ = capture_named(str(sample), options, None, setting=CaptureSetting(ZipfPattern(1.2)))
    found = answers.predict(answers.measure(trace, request), request)
    assert found["h100-sxm"].step.step_time_us == pytest.approx(found.run.measured_step.step_time_us, rel=1e-3)
    even, _ = capture_named(str(sample), options, None)
    assert answers.measure(even, request).measured_step.step_time_us > found.run.measured_step.step_time_us


def test_nothing_is_compared_with_a_program(hot) -> None:
    report = build_prediction_report(hot)
    assert [(one.speedup, one.speedup_per_sample) for one in report.targets] == [(None, None)] * 2
    assert report.decision is not None
    assert [(one.speedup, one.break_even) for one in report.decision.targets] == [(None, None)] * 2
    assert (report.decision.here.price, report.decision.here.run_hours) == (None, None)
    codes = {answer.template for one in report.decision.targets for answer in one.sentence.values["answers"]}
    assert {told.STEP_OF_CAPTURE, told.COSTS_ALONE, told.RUN_TAKES_THERE} <= codes
    assert not codes & {told.COSTS_UNDECIDED, told.COSTS_LESS, told.COSTS_MORE, told.COSTS_TIMES, told.RUN_TAKES}
    first = report.decision.targets[0]
    hours = hot[first.label].step.step_time_us / 1e6
    assert first.run_hours is not None
    assert first.run_hours.likely == pytest.approx(hours)
    assert first.dollars is not None
    assert first.dollars.likely == pytest.approx(hours / 3.6 * first.price)


def test_no_form_has_a_row_for_a_program(hot) -> None:
    report = build_prediction_report(hot)
    frames = build_frames(report)
    assert frames["step"]["from"].to_list() == ["predicted"] * 2
    assert set(frames["time"]["gpu"]) == set(GPUS)
    assert [one["speedup"] for one in json.loads(as_json.dump_prediction(report))["targets"]] == [None, None]
    for text in (as_text(terminal.render_predicted(report, 5)), markdown.render_report(report)):
        assert not [line for line in text.splitlines() if line.strip(" |").startswith("captured")]
        assert "speedup" not in text
        assert "(measured" not in text
        assert "measured step" not in text
    page = render_page(report)
    assert 'id="target-here"' not in page
    assert ">pays below<" not in page


def test_a_trace_still_has_its_row() -> None:
    sample = Path(tracekit.__file__).parent.parent / "sample_traces" / "synthetic_transformer_inference.json.gz"
    predicted = tracekit.predict(tracekit.load(sample), gpu="l40s")
    assert build_frames(build_prediction_report(predicted))["step"]["from"].to_list() == ["synthetic", "predicted"]


@pytest.mark.parametrize("layout", [{}, {"dp": 4}])
def test_a_cluster_that_is_used_in_part_is_said_so_first(program: Path, layout: dict[str, int]) -> None:
    found = predict(f"{program}:hot", gpu=(), cluster="8xh100-sxm", **layout)
    decision = build_prediction_report(found).decision
    assert decision is not None
    used = layout.get("dp", 1)
    assert decision.targets[0].name.startswith(f"{used} of the 8 GPUs of ")
    assert found["8xh100-sxm"].notes[0].code == "cluster-partly-used"


def test_a_whole_cluster_keeps_its_name() -> None:
    sample = Path(tracekit.__file__).parent.parent / "sample_traces" / "synthetic_transformer_inference.json.gz"
    decision = build_prediction_report(tracekit.predict(tracekit.load(sample), cluster="1xh100-sxm")).decision
    assert decision is not None
    assert " of the " not in decision.targets[0].name


def test_ranking_by_energy_and_length_needs_no_here(program: Path) -> None:
    assert Question(RankBy.ENERGY, WholeRun(10, "steps")).rank_by is RankBy.ENERGY
    found = predict(f"{program}:hot", rank_by="energy", steps_to_run=10)
    assert build_prediction_report(found).decision is not None


@pytest.mark.parametrize("kind", ["eager", "sdpa", "flash"])
def test_attention_of_a_program_can_be_chosen(program: Path, kind: str) -> None:
    found = NamedProgram(f"{program}:attends", CaptureOptions(attention=kind)).capture_batch(None)
    ops = [call.op for call in found.calls]
    fused = [op for op in ops if "scaled_dot_product" in op]
    assert found.facts.attention == kind
    if kind == "eager":
        assert (len(fused), sum("bmm" in op for op in ops), sum("softmax" in op for op in ops)) == (0, 2, 1)
    else:
        assert fused == ["aten::_scaled_dot_product_flash_attention"]
        (kernel,) = next(call.kernels for call in found.calls if call.op == fused[0])
        assert infer_library(kernel) == {"sdpa": "cudnn", "flash": "flash_attention"}[kind]


def test_attention_over_five_dimensions_has_no_fused_kernel(program: Path) -> None:
    """PyTorch's math backend computes it in fp32, under autocast too."""
    found = NamedProgram(f"{program}:attends_in_windows", CaptureOptions(autocast="fp16")).capture_batch(None)
    products = [call for call in found.calls if call.op == "aten::bmm"]
    assert [call.types[:2] for call in products] == [["float", "float"]] * 2
    assert products[0].dims[:2] == [[2 * 4 * 8, 256, 64], [2 * 4 * 8, 64, 256]]
    assert not any("scaled_dot_product" in call.op for call in found.calls)


@pytest.mark.parametrize(
    ("function", "kind", "code"),
    [
        ("attends_in_windows", "flash", "attention-not-flash"),
        ("attends_in_fp32", "flash", "attention-not-flash"),
        ("attends_with_mask", "flash", "attention-not-flash"),
        ("hot", "eager", "attention-not-called"),
        ("hot", "sdpa", "attention-not-called"),
    ],
)
def test_attention_that_a_program_cannot_run_is_refused(program: Path, function: str, kind: str, code: str) -> None:
    with pytest.raises(CaptureError, check=has_code(code)):
        NamedProgram(f"{program}:{function}", CaptureOptions(attention=kind)).capture_batch(None)


def test_an_unknown_attention_is_refused() -> None:
    with pytest.raises(RequestError, check=has_code("attention-unknown")):
        CaptureOptions(attention="ring")


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({}, None),
        ({"attn_implementation": None}, None),
        ({"attn_implementation": "eager"}, "eager"),
        ({"_attn_implementation": "sdpa"}, "sdpa"),
        ({"_attn_implementation": "flash_attention_2", "attn_implementation": "flash_attention_3"}, "flash"),
        ({"attn_implementation": {"": "eager", "text_config": "eager"}}, "eager"),
        ({"_flash_attn_2_enabled": True}, "flash"),
    ],
)
def test_the_config_says_how_attention_is_computed(config: dict[str, object], kind: str | None) -> None:
    assert pop_attention(config) == kind
    assert config == {}


@pytest.mark.parametrize(
    "config", [{"attn_implementation": "flex_attention"}, {"attn_implementation": {"a": "eager", "b": "sdpa"}}]
)
def test_other_attention_of_a_config_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(CaptureError, check=has_code("config-attention")):
        pop_attention(config)


PARTS = ("weights", "input_activations")
FLOAT8 = {"num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    "given",
    [
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
        {"quant_method": "fbgemm_fp8"},
        {"quant_method": "modelopt", "quant_algo": "FP8"},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"a": {"weights": FLOAT8, "input_activations": FLOAT8}},
        },
    ],
)
def test_fp8_of_a_config_is_read(given: dict[str, object]) -> None:
    found = pop_quantization({"quantization_config": given | {"ignore": ["lm_head"]}})
    assert found is not None
    assert (found.method.split(",")[0], found.kept) == (given["quant_method"], ("lm_head",))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq, bits 4"),
        ({"quant_method": "awq"}, "awq"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes, load_in_4bit True"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt, quant_algo NVFP4"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "fp8, fmt e5m2"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": FLOAT8}}}, "compressed-tensors"),
        ({"bits": 8}, "without a method, bits 8"),
        ("int8", "int8"),
    ],
)
def test_other_quantization_is_refused_by_its_name(given: object, named: str) -> None:
    with pytest.raises(CaptureError, match=named, check=has_code("config-quantization")):
        pop_quantization({"quantization_config": given})


LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1024,
}


@pytest.fixture
def config(tmp_path: Path):
    """Write a config with more keys; gives its path."""
    pytest.importorskip("transformers")

    def write(**more: object) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(LLAMA | more))
        return str(path)

    return write


def test_weights_of_fp8_take_a_byte_each(config) -> None:
    """Four products of 256 x 256 and three of 256 x 512 a layer in fp8; tables of 1024 x 256 and norms in bf16."""
    named = NamedProgram(config(quantization_config={"quant_method": "fp8"}), CaptureOptions(seq=128))
    found = named.capture_batch(None)
    quantized = 2 * (4 * 256 * 256 + 3 * 256 * 512)
    assert found.facts.parameter_bytes == quantized + 2 * (2 * 1024 * 256 + 5 * 256)
    products = [call.types[0] for call in found.calls if "_scaled_mm" in call.op]
    assert len(products) == 14
    assert {kind.lower() for kind in products} == {"c10::float8_e4m3fn"}
    assert found.facts.quantization == "fp8"


def test_weights_of_fp8_are_not_trained(config) -> None:
    named = NamedProgram(config(quantization_config={"quant_method": "fp8"}), CaptureOptions(seq=128, train=True))
    with pytest.raises(CaptureError, check=has_code("config-quantized-training")):
        named.capture_batch(None)


@pytest.mark.parametrize(
    ("given", "asked", "kind"),
    [
        ({}, None, "sdpa"),
        ({"attn_implementation": "eager"}, None, "eager"),
        ({"_attn_implementation": "eager"}, "flash", "flash"),
        ({"attn_implementation": "flex_attention"}, "eager", "eager"),
    ],
)
def test_attention_is_the_configs_unless_it_is_asked_for(config, given, asked, kind: str) -> None:
    found = NamedProgram(config(**given), CaptureOptions(seq=128, attention=asked)).capture_batch(None)
    ops = [call.op for call in found.calls]
    assert found.facts.attention == kind
    assert sum("scaled_dot_product" in op for op in ops) == (0 if kind == "eager" else 2)
    assert any("softmax" in op for op in ops) is (kind == "eager")


def test_a_calibration_is_in_the_captured_step_and_is_always_noted(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of the calibration take three times as long as by the law."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    name, options = f"{program}:attends", CaptureOptions(attention="eager")
    plain = capture_named(name, options, None)[0]
    rows = [
        {"family": "gemm", "dtype": "bf16", "m": m, "n": m, "k": 64.0, "batch": 8.0, "measured_us": 60.0}
        for m in (128.0, 256.0, 512.0)
    ]
    kernels = pl.DataFrame(rows, schema_overrides=calibration.KERNEL_COLUMNS)
    kernels = pl.concat([pl.DataFrame(schema=calibration.KERNEL_COLUMNS), kernels], how="diagonal")
    calibration.save(Calibration("h100-sxm", "bench", "2026-11-26", "torch 2.9", kernels))
    request = PredictRequest(gpu="h100-sxm")
    trace, _ = capture_named(name, options, None, setting=CaptureSetting(calibrated=True))
    found = answers.predict(answers.measure(trace, request), request)
    here, there = found.run.measured_step, found["h100-sxm"].step
    assert there.kernel_time_us == pytest.approx(here.kernel_time_us, rel=1e-3)
    assert here.kernel_time_us > 1.5 * answers.measure(plain, request).measured_step.kernel_time_us
    assert CALIBRATION_USED in {note.template for note in found["h100-sxm"].notes}
    report = build_prediction_report(found)
    used = next(note for note in found["h100-sxm"].notes if note.template is CALIBRATION_USED)
    assert any(used.render() in text for text in choose_notes(report).texts)
