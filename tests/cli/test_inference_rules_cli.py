"""Inference rules by name on the command line."""

from pathlib import Path

import pytest

from tracekit.inference_rules import INFERENCE_RULES

NAMES = [rule.name for rule in INFERENCE_RULES]
SAMPLE = Path(__file__).parents[2] / "sample_traces" / "synthetic_transformer_train.json.gz"


@pytest.mark.parametrize(
    "command",
    [("predict", "--gpu", "h100-sxm"), ("report",), ("sweep", "--gpu", "h100-sxm"), ("export", "-o", "x.csv")],
)
def test_an_unknown_rule_is_refused(run, command):
    code, _, err = run(command[0], SAMPLE, *command[1:], "--without-rule", "launch-cue", "-q")
    assert code == 1
    assert err.endswith("[rule-unknown]\n")
    assert all(name in err for name in NAMES)


def test_info_lists_the_rules(run):
    _, out, _ = run("info", SAMPLE, "-v", "--without-rule", "launch-queue")
    assert all(name in out for name in NAMES)
    assert "launch-queue (off)" in out
