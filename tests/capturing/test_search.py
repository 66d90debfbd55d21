"""Variants of a config: which there are, and that each is predicted as it is alone."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import tracekit as tk
from tests.answers.compositions import CONFIG
from tracekit.capturing.calls import Call
from tracekit.capturing.search import CallTable
from tracekit.capturing.variants import list_variants, parse_axes
from tracekit.errors import TracekitError
from tracekit.messages import models as messages
from tracekit.request import answers
from tracekit.request.program_options import SearchRequest

EMBEDDING, HEAD = 1000 * 256, 256 * 1000
LAYER = 4 * 256 * 256 + 3 * 256 * 512 + 2 * 256
"""Four projections, three matrices of the MLP and two norms, by hand."""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(CONFIG)
    return str(path)


def test_axes_are_values_and_ranges() -> None:
    axes = parse_axes(["num_hidden_layers=2,4", "hidden_size=64:256:96", "tie_word_embeddings=true", "act=silu,gelu"])
    assert axes == {
        "num_hidden_layers": [2, 4],
        "hidden_size": [64, 160, 256],
        "tie_word_embeddings": [True],
        "act": ["silu", "gelu"],
    }


@pytest.mark.parametrize("given", [["hidden_size"], ["=3"], ["a=1", "a=2"], ["a="], ["a=[1]"]])
def test_malformed_axes_are_refused(given: Sequence[str]) -> None:
    with pytest.raises(TracekitError) as failure:
        parse_axes(given)
    assert failure.value.code == messages.VARY_MALFORMED.code


def test_variants_are_all_combinations_in_order(config: str) -> None:
    found = list_variants(config, {"num_hidden_layers": [2, 4], "hidden_size": [64, 128]})
    assert [(one.config["num_hidden_layers"], one.config["hidden_size"]) for one in found] == [
        (2, 64), (2, 128), (4, 64), (4, 128),
    ]  # fmt: skip
    assert found[0].width == found[2].width != found[1].width


def test_keys_with_dots_lead_inside(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"text_config": {"hidden_size": 1}}))
    (one,) = list_variants(str(path), {"text_config.hidden_size": [8]})
    assert one.config == {"text_config": {"hidden_size": 8}}
    with pytest.raises(TracekitError) as failure:
        list_variants(str(path), {"vision_config.hidden_size": [8]})
    assert failure.value.code == messages.VARY_KEY_UNKNOWN.code


def test_calls_are_counted_once_and_found_again() -> None:
    """Calls of two kernels, one and two: in the order 0, 1, 0 their kernels are rows 0, 1, 2, 0, 1."""
    calls = [Call("aten::mm", [[size]], [""], [""], ("gemm",) * kernels) for size, kernels in ((8, 2), (16, 1), (8, 2))]
    table = CallTable()
    places = table.locate(calls)
    assert places.tolist() == [0, 1, 0]
    assert table.list_rows(places).tolist() == [0, 1, 2, 0, 1]


@pytest.mark.heavy
@pytest.mark.parametrize("options", [{}, {"train": True, "optimizer": "fused-adamw"}])
def test_each_variant_is_predicted_as_alone(config: str, options: dict[str, object]) -> None:
    pytest.importorskip("transformers")
    axes = {"num_hidden_layers": [5, 7], "hidden_size": [256, 320], "num_attention_heads": [4, 3]}
    found = tk.predict_many(config, vary=axes, gpu="h100-sxm", seq=64, **options)
    rows = {tuple(row[key] for key in axes): row for row in found.to_polars().iter_rows(named=True)}
    assert len(rows) == 8
    assert "multiple" in rows[5, 256, 3]["reason"]
    assert rows[5, 256, 3]["step_time_us"] is None
    assert rows[7, 256, 4]["parameters"] == EMBEDDING + HEAD + 7 * LAYER + 256
    given = json.loads(CONFIG) | {"num_hidden_layers": 7, "hidden_size": 320}
    Path(config).write_text(json.dumps(given))
    request = SearchRequest(gpu="h100-sxm", seq=64, **options)  # type: ignore[arg-type]
    trace, left = request.capture_trace(config, request)
    alone = answers.predict(answers.measure(trace, left), left).targets[0]
    row = rows[7, 320, 4]
    assert row["step_time_us"] == pytest.approx(alone.step.step_time_us, rel=1e-9)
    assert row["low_us"] == pytest.approx(alone.low_us, rel=2e-3)
    assert row["high_us"] == pytest.approx(alone.high_us, rel=2e-3)
    assert row["memory_bytes"] == alone.memory.max_bytes
