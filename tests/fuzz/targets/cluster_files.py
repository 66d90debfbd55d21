"""Hostile cluster files, as a target's and as the trace's cluster."""

import tempfile
from pathlib import Path

from tests.fuzz.command import check_command
from tests.fuzz.documents import BASES
from tests.fuzz.promises import check_prediction, read_json
from tests.fuzz.target import Target
from tests.fuzz.toml_texts import dump_text, load_text, make_texts

TRACE = str(BASES / "two_ranks.json")


def check(text: str) -> None:
    """Predict on the cluster that a file describes, and from it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lab.toml"
        path.write_bytes(dump_text(text))
        outcome = check_command("predict", TRACE, "--cluster", str(path), "--dp", "4", "--json")
        if outcome.code == 0:
            check_prediction(read_json(outcome.out))
            source = ("--source-cluster", str(path), "--cluster", "2x8xh100-sxm@ndr400")
            source_outcome = check_command("predict", TRACE, *source, "--json")
            if source_outcome.code == 0:
                check_prediction(read_json(source_outcome.out))
            check_command("clusters", str(path), "--json")


TARGET = Target(
    name="cluster_files",
    cases=make_texts(BASES / "cluster.toml"),
    check=check,
    load=load_text,
    dump=dump_text,
    suffix=".toml",
    examples=15,
)
