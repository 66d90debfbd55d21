"""Programs as they are named: functions of files, configs, and the command."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from predictors import load_gpu
from tests.codes import has_code
from tracekit.cli.app import main
from tracekit.comm.cluster import USABLE_MEMORY_FRACTION
from tracekit.errors import CaptureError, RequestError, TracekitError

torch = pytest.importorskip("torch")


from tracekit.capturing import load  # noqa: E402
from tracekit.capturing.load import MAX_TOKENS, load_program, read_max_tokens  # noqa: E402
from tracekit.capturing.loaded_program import LoadedProgram  # noqa: E402
from tracekit.capturing.options import CaptureOptions  # noqa: E402
from tracekit.capturing.steps import (  # noqa: E402
    TOKENS_STEP,
    NamedProgram,
    predict_steps,
)
from tracekit.messages.models import CAPTURE_NEEDS_TRANSFORMERS, CONFIG_MODEL_UNKNOWN  # noqa: E402

PROGRAM = """
import os
import sys

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


def sized(batch=2):
    return nn.Linear(WIDTH, WIDTH), torch.zeros(batch, 1024, WIDTH)


def several():
    return torch.add, torch.zeros(4), torch.zeros(4)


def packed():
    return torch.add, (torch.zeros(4), torch.zeros(4))


def nothing():
    return (lambda x: x), torch.zeros(4)


class OwnError(BaseException):
    pass


class Leaves(nn.Module):
    def __init__(self, place):
        super().__init__()
        self.place = place

    def train(self, mode=True):
        if self.place == "train":
            raise OwnError

    def forward(self, x):
        if self.place == "forward":
            sys.exit(3)
        return x + 1


def leaving():
    sys.exit(4)


def leaving_in_train():
    return Leaves("train"), torch.zeros(4)


def leaving_in_forward():
    return Leaves("forward"), torch.zeros(4)


def train_returns_nothing():
    return Leaves(""), torch.zeros(4)


def interrupting():
    raise KeyboardInterrupt


def talking():
    print("{not JSON")
    os.write(1, b"{raw")
    os.system("echo '{child'")
    return nn.Linear(WIDTH, WIDTH), torch.zeros(8, WIDTH)
"""


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


@pytest.mark.parametrize("name", ["several", "packed"])
def test_inputs_follow_the_model_or_are_a_tuple(program: Path, name: str) -> None:
    loaded = load_program(f"{program}:{name}", batch=None, tokens=1, dtype="bf16", training=False)
    assert [one.shape for one in loaded.inputs] == [(4,), (4,)]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("{}", "program-malformed"),
        ("{}:", "program-malformed"),
        ("{}:3", "program-malformed"),
        ("{}:missing", "function-missing"),
        ("{}:broken", "program-unreadable"),
        ("{}:alone", "inputs-missing"),
        ("{}:leaving", "program-unreadable"),
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


@pytest.mark.parametrize(
    ("raised", "code", "named"),
    [
        (ModuleNotFoundError("No module named 'tqdm'", name="tqdm"), "package-unusable", "No module named 'tqdm'"),
        (ImportError("libcudart.so.12: no such file"), "package-unusable", "libcudart.so.12"),
        (ModuleNotFoundError("No module", name="transformers"), "capture-needs-transformers", "transformers"),
    ],
)
def test_what_a_package_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, raised: ImportError, code: str, named: str
) -> None:
    def fail(name: str) -> None:
        raise raised

    monkeypatch.setattr(load, "import_module", fail)
    with pytest.raises(CaptureError, match=re.escape(named), check=has_code(code)):
        load.import_package("transformers", CAPTURE_NEEDS_TRANSFORMERS)


def test_the_missing_module_behind_another_error_is_named() -> None:
    with pytest.raises(CaptureError, match=r"ModuleNotFoundError: No module named 'tqdm'\.") as failed:  # noqa: SIM117
        with load.name_failures(lambda error: CONFIG_MODEL_UNKNOWN(path="a", error=error)):
            raise RuntimeError("Failed to import (look up):\n...") from ModuleNotFoundError("No module named 'tqdm'")
    assert failed.value.code == CONFIG_MODEL_UNKNOWN.code


@pytest.mark.parametrize("name", ["leaving_in_train", "leaving_in_forward"])
def test_what_ends_the_program_is_said(program: Path, name: str) -> None:
    with pytest.raises(CaptureError, check=has_code("capture-failed")):
        NamedProgram(f"{program}:{name}", CaptureOptions()).capture_batch(None)


def test_a_model_whose_train_returns_nothing_is_captured(program: Path) -> None:
    assert len(NamedProgram(f"{program}:train_returns_nothing", CaptureOptions()).capture_batch(None).calls) == 1


def test_ctrl_c_in_a_program_stays_ctrl_c(program: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_program(f"{program}:interrupting", batch=1, tokens=1, dtype="bf16", training=False)


def test_what_a_program_prints_is_not_among_the_answer(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    NamedProgram(f"{program}:talking", CaptureOptions()).capture_batch(None)
    sys.stdout.write("answer\n")
    written = capfd.readouterr()
    assert written.out == "answer\n"
    assert sorted(written.err.replace("{raw", "{raw\n").split()) == ["JSON", "{child", "{not", "{raw"]


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
    ("function", "code"), [("reading", "values-unknown"), ("nothing", "capture-empty"), ("missing", "function-missing")]
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


@pytest.mark.parametrize(
    ("function", "batch", "code"),
    [("make", "max", "batch-of-function"), ("sized", "0", "batch-malformed"), ("sized", "two", "batch-malformed")],
)
def test_impossible_batches_are_refused(program: Path, function: str, batch: str, code: str) -> None:
    with pytest.raises(RequestError, check=has_code(code)):
        predict_steps(NamedProgram(f"{program}:{function}", CaptureOptions()), ["l4"], batch, cuda_graph=False)


def test_a_function_is_captured_at_its_batch_and_at_the_largest(program: Path) -> None:
    named = NamedProgram(f"{program}:sized", CaptureOptions(train=True))
    (one,) = predict_steps(named, ["l4"], "3", cuda_graph=False)
    assert one.program.facts.batch == 3
    first, second = predict_steps(named, ["l4", "b200"], "max", cuda_graph=False)
    assert 1 < first.program.facts.batch < second.program.facts.batch
    assert first.prediction.memory.fits
    above = named.capture_batch(first.program.facts.batch + 1).facts.peak_bytes
    assert above > USABLE_MEMORY_FRACTION * load_gpu("l4").memory_bytes


def test_a_config_is_captured_at_its_batch_and_at_the_largest(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2, "n_head": 2}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    (at_two,) = predict_steps(NamedProgram(str(path), CaptureOptions(seq=128)), ["l4"], "2", cuda_graph=False)
    assert (at_two.program.facts.batch, at_two.program.facts.tokens) == (2, 256)
    named = NamedProgram(str(path), CaptureOptions(seq=1024, train=True))
    batches = [one.program.facts.batch for one in predict_steps(named, ["l4", "b200"], "max", cuda_graph=False)]
    assert 1 < batches[0] < batches[1]


@pytest.fixture
def embedding_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a config whose model is a table of 1 GiB, as transformers may be missing here."""

    def load(name: str, *, batch: int, tokens: int, **options: object) -> LoadedProgram:
        with torch.device("meta"):
            words = torch.empty(batch, tokens).long()
            return LoadedProgram("embedding", torch.nn.Embedding(2**16, 4096), (words,), tokens=tokens)

    monkeypatch.setattr("tracekit.capturing.steps.load_program", load)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 2**18}))
    return path


def test_the_longest_sequences_fill_the_memory_up_to_the_positions(embedding_config: Path) -> None:
    def find_tokens(gpu: str, batch: str) -> int:
        named = NamedProgram(str(embedding_config), CaptureOptions(dtype="fp32"))
        (step,) = predict_steps(named, [gpu], batch, cuda_graph=False, longest=True)
        assert step.sequence_tokens
        assert step.program.facts.peak_bytes <= USABLE_MEMORY_FRACTION * load_gpu(gpu).memory_bytes
        above = named.capture_batch(int(batch), step.sequence_tokens + TOKENS_STEP).facts.peak_bytes
        fits = above <= USABLE_MEMORY_FRACTION * load_gpu(gpu).memory_bytes
        assert fits == (step.sequence_tokens == 2**18)
        return step.sequence_tokens

    assert find_tokens("b200", "1") == 2**18
    assert find_tokens("l4", "16") < find_tokens("l4", "8") < 2**18


@pytest.mark.parametrize(("batch", "code"), [("max", "longest-of-config"), ("100000000", "sequence-fits-nowhere")])
def test_impossible_lengths_are_refused(embedding_config: Path, batch: str, code: str) -> None:
    named = NamedProgram(str(embedding_config), CaptureOptions())
    with pytest.raises(TracekitError, check=has_code(code)):
        predict_steps(named, ["l4"], batch, cuda_graph=False, longest=True)


def test_functions_choose_their_sequences_themselves(program: Path) -> None:
    with pytest.raises(RequestError, check=has_code("longest-of-config")):
        predict_steps(NamedProgram(f"{program}:make", CaptureOptions()), ["l4"], None, cuda_graph=False, longest=True)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ('{"n_positions": 1024}', 1024),
        ('{"max_position_embeddings": 0, "n_positions": 512}', 512),
        ('{"max_position_embeddings": "many"}', MAX_TOKENS),
        ("{}", MAX_TOKENS),
    ],
)
def test_a_config_tells_how_long_sequences_may_be(tmp_path: Path, text: str, tokens: int) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert read_max_tokens(path) == tokens


@pytest.mark.parametrize("text", ["[]", "", "not JSON"])
def test_a_damaged_config_tells_no_length(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(CaptureError, check=has_code("program-unreadable")):
        read_max_tokens(path)


def test_timm_is_needed_for_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(CaptureError, check=has_code("capture-needs-timm")):
        load_program("timm:resnet50", batch=1, tokens=1, dtype="fp32", training=False)


def make_timm() -> ModuleType:
    """Make a stand-in for timm, which has one model: a convolution of images of 8 x 8."""
    timm = ModuleType("timm")
    model = torch.nn.Conv2d(3, 16, 3, bias=False, device="meta")
    model.pretrained_cfg = {"input_size": (3, 8, 8)}
    vars(timm).update(is_model="conv".__eq__, list_models=lambda: ["conv"], create_model=lambda name: model)
    return timm


def test_a_model_of_timm_takes_its_batch_and_the_images_it_was_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", make_timm())
    found = NamedProgram("timm:conv", CaptureOptions()).capture_batch(4)
    assert found.calls[0].dims[:2] == [[4, 3, 8, 8], [16, 3, 3, 3]]
    assert found.facts.batch == 4
    with pytest.raises(CaptureError, match="conv", check=has_code("timm-model-unknown")):
        load_program("timm:con", batch=1, tokens=1, dtype="fp32", training=False)


@pytest.mark.parametrize("last", [False, True])
def test_channels_last_needs_no_change_of_layout(monkeypatch: pytest.MonkeyPatch, last: bool) -> None:
    monkeypatch.setitem(sys.modules, "timm", make_timm())
    options = CaptureOptions(channels_last=last)
    kernels = NamedProgram("timm:conv", options).capture_batch(4).calls[0].kernels
    assert any("nchwToNhwc" in kernel for kernel in kernels) is not last
