"""Hostile files beside a trace, through the command line: configs, tables, plans, lengths, saved predictions."""

import csv
import io
import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.command import check_command, use_data_home
from tests.fuzz.documents import BASES, apply_edits, dump_case, make_document_edits
from tests.fuzz.promises import check_numbers, read_json
from tests.fuzz.target import Target

TRACE = str(BASES / "training.json")
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2048,
    "num_attention_heads": 16, "num_key_value_heads": 4, "num_hidden_layers": 4, "vocab_size": 32000,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
EXPERTS = {
    "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
}  # fmt: skip
TABLES = {
    "batch_size": 1024,
    "table_optimizer": "adagrad",
    "tables": [
        {"name": "t0", "num_embeddings": 1000, "embedding_dim": 64, "pooling_factor": 10, "alpha": 1.05},
        {"name": "t1", "num_embeddings": 1_000_000, "embedding_dim": 128, "data_type": "fp16"},
        "2*5000x32:3",
    ],
}
ROWS = [{"input": 100, "output": 10, "arrival": 3.5}, {"input": 2000, "output": 30, "arrival": 4.25}]
ENGINE = ("--framework", "vllm", "--gpu", "h100-sxm")

COMMANDS: dict[str, tuple[str, Sequence[str]]] = {
    "config": ("config.json", ("predict", "{file}", *ENGINE, "--decode", "--batch", "8", "--context", "256")),
    "experts": ("config.json", ("serving", "{file}", *ENGINE, "--concurrency", "4", "--input", "64", "--output", "4")),
    "model": ("config.json", ("predict", TRACE, "--gpu", "h100-sxm", "--model-config", "{file}")),
    "tables": ("tables.json", ("shard", "{file}", "--cluster", "4xh100-sxm")),
    "lengths": ("lengths.csv", ("serving", "{config}", *ENGINE, "--lengths", "{file}")),
    "prediction": ("prediction.json", ("compare", "{file}", TRACE)),
    "outcomes": ("tracekit/scoreboard.jsonl", ("predict", TRACE, "--gpu", "h100-sxm")),
}
"""What a file is -> its name, and what is asked with it."""


@cache
def load_document(kind: str) -> Any:
    """Return the good document of a kind, which nobody may change."""
    if kind == "prediction":
        return read_json(check_command("predict", TRACE, "--gpu", "h100-sxm", "--json").out)
    if kind == "outcomes":
        return [_make_outcome()]
    return {
        "config": CONFIG, "model": CONFIG, "experts": CONFIG | EXPERTS, "tables": TABLES, "lengths": ROWS,
    }[kind]  # fmt: skip


def _make_outcome() -> Any:
    """Return an outcome as ``compare --keep`` keeps it."""
    with tempfile.TemporaryDirectory() as folder, use_data_home(folder):
        saved = Path(folder) / "prediction.json"
        saved.write_bytes(check_command("predict", TRACE, "--gpu", "a100-sxm-80gb", "--json").out)
        check_command("compare", str(saved), TRACE, "--keep")
        return json.loads((Path(folder) / COMMANDS["outcomes"][0]).read_text())


def write_text(kind: str, document: Any) -> str:
    """Write a document as a file of its kind."""
    if kind == "outcomes":
        return "\n".join(map(json.dumps, document))
    if kind != "lengths":
        return json.dumps(document)
    text = io.StringIO(newline="")
    rows = [row if isinstance(row, dict) else {"input": row} for row in document]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def make_case(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return the strategy of cases made of a kind's document."""
    return st.builds(lambda edits: {"base": kind, "edits": edits}, make_document_edits(load_document(kind)))


def check(case: dict[str, Any]) -> None:
    """Ask with an edited file."""
    name, words = COMMANDS[case["base"]]
    text = write_text(case["base"], apply_edits(load_document(case["base"]), case["edits"]))
    with tempfile.TemporaryDirectory() as folder, use_data_home(folder):
        file, config = Path(folder) / name, Path(folder) / "llama.json"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        config.write_text(json.dumps(CONFIG))
        asked = (word.format(file=file, config=config) for word in words)
        outcome = check_command(*asked, "--json", codes=(0, 1, 2))
    if outcome.code:
        return
    document = read_json(outcome.out)
    if words[0] != "compare":  # whose differences may be below zero
        check_numbers(document)


TARGET = Target(
    name="side_files",
    cases=st.sampled_from([*COMMANDS]).flatmap(make_case),
    check=check,
    load=json.loads,
    dump=dump_case,
    suffix=".json",
    examples=10,
)
