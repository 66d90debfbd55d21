"""Hostile GPU files, as a target's and as the trace's GPU."""

import tempfile
from pathlib import Path

from tests.fuzz.command import check_command
from tests.fuzz.documents import BASES
from tests.fuzz.promises import check_prediction, read_json
from tests.fuzz.target import Target
from tests.fuzz.toml_texts import dump_text, load_text, make_texts

TRACE = str(BASES / "training.json")


def check(text: str) -> None:
    """Predict on the GPU that a file describes, and from it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lab.toml"
        path.write_bytes(dump_text(text))
        outcome = check_command("predict", TRACE, "--gpu", str(path), "--json")
        if outcome.code == 0:
            check_prediction(read_json(outcome.out))
            source = check_command("predict", TRACE, "--source-gpu", str(path), "--gpu", "t4", "--json")
            check_prediction(read_json(source.out))
            check_command("gpus", str(path), "--json")


TARGET = Target(
    name="gpu_files",
    cases=make_texts(BASES / "gpu.toml"),
    check=check,
    load=load_text,
    dump=dump_text,
    suffix=".toml",
    examples=6,
)
