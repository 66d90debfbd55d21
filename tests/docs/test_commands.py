"""Each command of each page runs where its files lie, in the page's order."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import tracekit as tk
from tests.docs.test_pages import COMMAND, ROOT, WRITTEN
from tests.prediction.test_experts import Model
from tracekit.cli.app import main
from tracekit.export.kineto import render_predicted_trace
from tracekit.testing import TraceBuilder

pytestmark = pytest.mark.heavy

SAMPLE = ROOT / "sample_traces/synthetic_transformer_train.json.gz"
DECODE = ROOT / "sample_traces/recorded/h100-sxm_llama_decode.json.gz"
EXPERTS_TRACE, STEPS_TRACE = "experts.json", "seven_steps.json"
LEFT_OUT = {
    r"^predict log/|profile_traces/": "reads what another tool wrote",
    r"s3://|tcp://|postgresql://|/lustre/": "reads an address that isn't there",
    r"^(serve|mcp)\b": "serves until it is stopped",
    r"^view |tracekit view": "opens a browser",
    r"^record |^demo": "tested in tests/cli",
    r"RESULT\.json|--measured": "reads what is measured on a GPU",
    r"module=": "reads a trace with stacks",
    r"trace-DECODE|--model-config|capture_traces/": "reads an engine's trace; tests/test_real_traces.py has some",
    r"\bcpu\.json": "reads a trace of a CPU; tests/capturing records one",
    r"^calibrate --(trace|remove)": "changes with the GPUs of this machine",
}
"""Commands that aren't run here, by a pattern, with the reason."""
NEEDS = {r"\bconfig\.json|moe\.json|\w\.toml --cluster": "transformers", r"timm:": "torchvision"}
"""Packages without which a command is refused."""
RECOMMENDER_TRACE = "sample_traces/recorded/h100-sxm_dlrm_train.json.gz"
OTHER_TRACE = {
    r"--ep 8 --ep 64": EXPERTS_TRACE,
    r"--steps 7 ": STEPS_TRACE,
    r"^shard traces/": RECOMMENDER_TRACE,
    r"traces/rank\*\.json\.gz": "traces/trace.json.gz",
    r"--gradient-compression": "sample_traces/recorded/h100-sxm_resnet50_train.json.gz",
}
"""Commands for what the sample isn't: experts, as many steps, embedding tables, gradients of fp32."""

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 4096,
    "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
}  # fmt: skip
MOE = {
    **LLAMA, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 16,
    "num_experts_per_tok": 2, "moe_intermediate_size": 256, "head_dim": 64,
}  # fmt: skip
PROGRAM = """
import torch


def make(batch=8):
    layers = torch.nn.Sequential(*(torch.nn.TransformerEncoderLayer(256, 4, batch_first=True) for _ in range(2)))
    return layers.bfloat16(), torch.zeros(batch, 128, 256, dtype=torch.bfloat16)
"""
TABLES = [{"name": "user", "num_embeddings": 4_000_000, "embedding_dim": 128, "pooling_factor": 20, "alpha": 1.05}]
TORCHTITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 2048
[parallelism]
data_parallel_shard_degree = -1
"""


def list_commands(page: Path) -> Iterator[str]:
    """Yield the commands of a page in order, up to a pipe or a second command."""
    for match in COMMAND.finditer(page.read_text().replace("\\\n", " ")):
        yield re.split(r" (?:[|>#]|&&) ", match.group(1))[0].strip()


PAGES_WITH_COMMANDS = [page for page in WRITTEN if any(list_commands(page))]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that pages name."""
    folder = tmp_path_factory.mktemp("files")
    for name in (
        "trace.json.gz",
        "before.json.gz",
        "after.json.gz",
        "reference.json.gz",
        "new.json.gz",
        "there.json.gz",
    ):
        shutil.copy(SAMPLE, folder / name)
    (folder / "traces").mkdir()
    shutil.copy(SAMPLE, folder / "traces/trace.json.gz")
    (folder / "sample_traces").symlink_to(ROOT / "sample_traces")
    Model(2, trains=True).builder.save(folder / EXPERTS_TRACE)
    builder = TraceBuilder()
    for number in range(5, 9):
        builder.step(number, 1000 * number, 1000)
        builder.op("aten::mm", 1000 * number + 1, 40, dims=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
        builder.kernel("ampere_bf16_s16816gemm_bf16_128x128", 1000 * number + 20, 300, launch=1000 * number + 5)
    builder.save(folder / STEPS_TRACE)
    for name, content in {"config.json": LLAMA, "moe.json": MOE, "tables.json": TABLES}.items():
        (folder / name).write_text(json.dumps(content))
    shutil.copy(ROOT / "sample_traces/dlrm_dcnv2.json", folder / "dlrm.json")
    shutil.copy(ROOT / "predictors/gpus/h200-sxm.toml", folder / "my_gpu.toml")
    (folder / "model.py").write_text(PROGRAM)
    for name in ("train_config.toml", "llama3_8b.toml"):
        (folder / name).write_text(TORCHTITAN)
    measured = render_predicted_trace(tk.predict(tk.load(SAMPLE), gpu="h200-sxm").targets[0])
    for name in ("on_h200.json.gz", "measured.json.gz"):
        (folder / name).write_bytes(measured)
    return folder


@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS, ids=lambda page: page.stem)
def test_commands_run_in_the_order_of_the_page(page, files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    failed = []
    for command in list_commands(page):
        if any(re.search(pattern, command) for pattern in LEFT_OUT):
            continue
        if any(re.search(one, command) and not importlib.util.find_spec(name) for one, name in NEEDS.items()):
            continue
        other = next((name for pattern, name in OTHER_TRACE.items() if re.search(pattern, command)), None)
        words = shlex.split(
            re.sub(r"traces/rank\*\.json\.gz|\btrace\.json\.gz|traces/", other, command) if other else command
        )
        writes = "-o" in words or words[0] in ("share", "redact")
        monkeypatch.setattr(sys, "argv", ["tracekit", *words, *["--force"] * writes])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        if ended.value.code not in (0, None):
            failed.append(f"{command}: {ended.value.code}: {said.err.strip().splitlines()[-1:]}")
    assert failed == []


def test_the_workflow_says_in_its_summary_what_became_slower(tmp_path):
    page = (ROOT / "docs/how-to/use-in-ci.md").read_text()
    workflow = yaml.safe_load(re.search(r"(?ms)^```yaml\n(.*?)^```", page).group(1))
    step = next(step for step in workflow["jobs"]["compare"]["steps"] if step.get("name") == "compare")
    for version, recorded_on in (("before", "h200-sxm"), ("after", "h100-sxm")):
        (tmp_path / version).mkdir()
        shutil.copy(ROOT / f"sample_traces/recorded/{recorded_on}_gpt2_train.json.gz", tmp_path / version)
    summary = tmp_path / "summary.md"
    environment = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": str(summary),
    }  # fmt: skip
    ended = subprocess.run(["bash", "-e", "-c", step["run"]], env=environment, capture_output=True, check=False)
    assert ended.returncode == 3
    assert re.match(r"# .*: 41\.7 ms, 45\.\d % longer\n", summary.read_text())
    assert "| idle |" in summary.read_text()
    assert (tmp_path / "changes.html").exists()
