"""What tracekit says of the sample traces. A change shows as a diff; `pytest --update-golden` accepts it."""

import json
from pathlib import Path
from typing import Any

import pytest

import tracekit as tk
from tests.asking import predict
from tests.conftest import SAMPLES
from tracekit.render import json as as_json
from tracekit.reporting import build_report
from tracekit.run import prepare_run

GOLDEN = Path(__file__).parent / "golden"
GPUS = ("a100-sxm-80gb", "h100-sxm", "l40s", "v100-sxm-32gb", "mi300x")


def rounded(value: Any) -> Any:
    """Floats to four significant digits, so that a compiler's last bit is no diff."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    return [rounded(entry) for entry in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["synthetic_transformer_train", "synthetic_transformer_inference"])
def test_samples(name, request):
    run = prepare_run(tk.load(SAMPLES / f"{name}.json.gz"))
    report = build_report(run, tuple(predict(run, GPUS).values()))
    got = json.loads(as_json.dump_measured(report, top=15)) | json.loads(as_json.dump_prediction(report, top=15))
    del got["source"]["trace"], got["other_kernels"], got["course"]
    path = GOLDEN / f"{name}.json"
    text = json.dumps(rounded(got), indent=1, ensure_ascii=False) + "\n"
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert json.loads(text) == json.loads(path.read_text())
