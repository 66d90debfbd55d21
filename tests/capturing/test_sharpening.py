"""Captured programs whose times a trace of the program corrects."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tests.codes import has_code
from tracekit.cli.app import main
from tracekit.errors import CaptureError
from tracekit.testing import A100, TraceBuilder
from tracekit.trace import Trace

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

WIDTH, ROWS = 1024, 4096


def build(rows: int = ROWS) -> tuple[nn.Module, Tensor]:
    """Build two layers and their input."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 2 * WIDTH)).bfloat16()
        return model, torch.empty(rows, WIDTH, dtype=torch.bfloat16)


def record(product_us: float = 100.0, other_us: float = 40.0, device: dict[str, object] | None = A100) -> Trace:
    """Return a recording of these layers, in which each product and the activation takes a time."""
    builder, start = TraceBuilder(device), 0.0
    half = "c10::BFloat16"
    for index, outputs in enumerate((WIDTH, 2 * WIDTH)):
        dims = [[outputs], [ROWS, WIDTH], [WIDTH, outputs], [], []]
        types, concrete = [half] * 3 + ["Scalar"] * 2, ["", "", "", "1", "1"]
        strides = [[1], [WIDTH, 1], [1, WIDTH], [], []]
        builder.op("aten::addmm", start, 20, dims=dims, types=types, concrete=concrete, **{"Input Strides": strides})
        builder.kernel("ampere_bf16_s16816gemm_bf16_128x128", start + 10, product_us, launch=start + 5)
        start += 10 + product_us + 20
        if index == 0:
            dims, types, concrete = [[ROWS, WIDTH], []], [half, "Scalar"], ["", '"none"']
            builder.op(
                "aten::gelu",
                start,
                20,
                dims=dims,
                types=types,
                concrete=concrete,
                **{"Input Strides": [[WIDTH, 1], []]},
            )
            builder.kernel("vectorized_elementwise_kernel<4, gelu>", start + 10, other_us, launch=start + 5)
            start += 10 + other_us + 20
    return builder.load()


def predict_kernels(trace: Trace, gpu: str) -> pl.DataFrame:
    """Return the predicted kernels of a trace on a GPU."""
    return tk.predict(trace, gpu=gpu).targets[0].kernels


def test_what_the_trace_ran_alike_takes_its_time_on_its_gpu() -> None:
    found = predict_kernels(tk.capture(*build(), measured=record()), "a100-sxm")
    assert found["time_us"].to_list() == pytest.approx([100, 40, 100], rel=0.01)
    assert set(found["method"]) == {"measured"}


def test_on_another_gpu_measured_times_carry_over() -> None:
    slow, fast = (predict_kernels(tk.capture(*build(), measured=record(us)), "h100-sxm") for us in (200.0, 100.0))
    assert set(fast["method"]) == {"transfer"}
    ratios = (slow["time_us"] / fast["time_us"]).to_list()
    assert 1.5 < ratios[0] <= 2.01
    assert ratios[1] == pytest.approx(1, rel=0.01)


def test_at_another_batch_the_ratio_carries_over_with_a_wider_interval() -> None:
    plain = predict_kernels(tk.capture(*build(), gpu="a100-sxm"), "a100-sxm")["time_us"]
    more = predict_kernels(tk.capture(*build(2 * ROWS), gpu="a100-sxm"), "a100-sxm")["time_us"]
    alike = predict_kernels(tk.capture(*build(), measured=record()), "a100-sxm")
    found = predict_kernels(tk.capture(*build(2 * ROWS), measured=record()), "a100-sxm")
    # Both products share their op's ratio, of measured to predicted time together.
    ratio = 200 / (plain[0] + plain[2])
    assert found["time_us"][0] == pytest.approx(more[0] * ratio, rel=0.02)
    widths = [(table["high_us"] / table["low_us"]).max() for table in (alike, found)]
    assert widths[0] < widths[1]


def test_reports_say_what_was_measured() -> None:
    report = tk.report(tk.capture(*build(), measured=record()))
    (told,) = [one for one in report.warnings if one.code == "capture-sharpened"]
    assert told.values["seen_pct"] == pytest.approx(100)
    assert "nothing-measured" not in {one.code for one in report.warnings}
    small = tk.report(tk.capture(*build(64), measured=record()))
    (told,) = [one for one in small.warnings if one.code == "capture-sharpened"]
    assert told.values["seen_pct"] == 0


def test_a_file_keeps_what_was_measured(tmp_path: Path) -> None:
    from tracekit.capturing.program import capture
    from tracekit.capturing.sharpen import measure_ops
    from tracekit.capturing.timed_trace import build_timed_trace

    built = build_timed_trace(capture(*build()), measured=measure_ops(record()))
    found = predict_kernels(tk.load(built.save(tmp_path / "step.json.gz")), "a100-sxm")
    assert found["time_us"].to_list() == pytest.approx([100, 40, 100], rel=0.01)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: tk.capture(*build()), "measured-by-capture"),
        (lambda: record(device=None), "measured-by-unknown-gpu"),
        (lambda: TraceBuilder().op("aten::mm", 0, 9).kernel("gemm", 5, 9, launch=1).load(), "measured-without-shapes"),
    ],
)
def test_traces_that_measure_nothing_are_refused(make: Callable[[], Trace], code: str) -> None:
    with pytest.raises(CaptureError, check=has_code(code)):
        tk.capture(*build(), measured=make())


def test_ratios_are_no_larger_than_an_op_can_be_wrong() -> None:
    found = predict_kernels(tk.capture(*build(), measured=record(1e6)), "a100-sxm")
    plain = predict_kernels(tk.capture(*build(), gpu="a100-sxm"), "a100-sxm")
    assert (found["time_us"] / plain["time_us"]).max() == pytest.approx(5, rel=0.01)


def test_the_command_takes_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef make(batch=4096):\n"
        "    layers = nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 2048)\n"
        "    return nn.Sequential(*layers).bfloat16(), torch.zeros(batch, 1024, dtype=torch.bfloat16)\n"
    )
    builder = TraceBuilder(A100)
    sides = {"Input Strides": [[1], [1024, 1], [1, 1024], [], []]}
    dims, types = [[1024], [4096, 1024], [1024, 1024], [], []], ["c10::BFloat16"] * 3 + ["Scalar"] * 2
    builder.op("aten::addmm", 0, 20, dims=dims, types=types, concrete=["", "", "", "1", "1"], **sides)
    builder.kernel("ampere_bf16_s16816gemm_bf16_128x128", 10, 100, launch=5)
    path = builder.save(tmp_path / "trace.json")
    for command in (["capture"], ["predict", "--top", "0"]):
        arguments = [f"{tmp_path}/model.py:make", "--gpu", "a100-sxm", "--measured", str(path)]
        monkeypatch.setattr(sys, "argv", ["tracekit", *command, *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0, capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["tracekit", "predict", str(path), "--gpu", "l4", "--measured", str(path)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "[options-of-programs]" in capsys.readouterr().err


def test_facts_are_replaced_as_a_whole() -> None:
    trace = tk.capture(*build(), measured=record())
    facts = trace.ranks[0].capture_facts
    assert facts
    assert facts.gpu == "a100-sxm-80gb"
    assert len(facts.seen) == 3
    assert replace(facts, seen=()).measured_by == facts.measured_by
