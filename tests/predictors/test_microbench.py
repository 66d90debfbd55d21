"""The script that users run on their GPU: every operator it measures is one that tracekit can predict."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import polars as pl
import pytest

pytest.importorskip("torch")

import torch

from predictors import load_gpu, microbench, predict
from predictors.columns import prepare_kernels

PRECISIONS = microbench.list_precisions(9, 0, amd=False)


def test_it_needs_nothing_but_pytorch():
    tree = ast.parse(Path(microbench.__file__).read_text())
    names = [n for node in ast.walk(tree) if isinstance(node, ast.Import) for n in (a.name for a in node.names)]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"torch"}


def test_every_case_has_a_law_and_the_work_of_its_shape():
    rows = pl.DataFrame([row for row, _ in microbench.generate_cases("cpu", PRECISIONS)], infer_schema_length=None)
    laws = set(prepare_kernels(rows)["law"])
    assert laws >= {"gemm half", "gemm fp8", "gemm fp32", "conv half", "sequence", "decode"}
    assert laws >= {"elementwise", "norm", "softmax", "reduction", "copy", "embedding", "optimizer"}
    assert None not in laws
    assert rows.is_unique().all()
    eight_bits = rows.filter(pl.col("dtype") == "fp8")
    assert (eight_bits.select("n", "k") % 16 == 0).to_numpy().all()
    assert predict(rows, "h100-sxm")["time_us"].sum() < 100e3


def test_a_slow_gpu_is_found_slow_in_every_family():
    gpu = load_gpu("h200-sxm")
    rows = pl.DataFrame([row for row, _ in microbench.generate_cases("cpu", PRECISIONS)], infer_schema_length=None)
    before = predict(rows, gpu)["time_us"]
    after = predict(rows, gpu, calibrations={gpu: rows.with_columns(measured_us=1.3 * before)})["time_us"]
    slower = rows.with_columns(ratio=after / before).group_by("family").agg(pl.col("ratio").median())
    assert slower["ratio"].is_between(1.15, 1.35).all(), slower


@pytest.mark.parametrize(("gpu", "precisions"), [("p100-pcie", ["fp32"]), ("t4", ["fp16", "fp32"])])
def test_older_gpus_are_asked_for_what_they_have(gpu, precisions):
    major, minor = map(int, load_gpu(gpu).compute_capability.split("."))
    assert microbench.list_precisions(major, minor, amd=False) == precisions


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [("9.0", torch.float8_e4m3fn), ("gfx942", torch.float8_e4m3fnuz), ("gfx950", torch.float8_e4m3fn)],
)
def test_fp8_is_the_format_that_the_gpu_has(monkeypatch, capability, dtype):
    given = []
    monkeypatch.setattr(microbench, "capability", lambda: capability)
    monkeypatch.setattr(torch, "_scaled_mm", lambda a, b, **_: given.extend([a.dtype, b.dtype]))
    microbench._build_fp8_gemm("cpu", 16, 32, 16)()
    assert given == [dtype, dtype]


def test_operators_run_on_the_shapes_they_claim(monkeypatch):
    monkeypatch.setattr(microbench, "PRODUCTS", ((16, 32, 16),))
    monkeypatch.setattr(microbench, "FEW_PRODUCTS", ((16, 32, 16),))
    monkeypatch.setattr(microbench, "BATCHED", ((2, 8, 8, 8),))
    monkeypatch.setattr(microbench, "ATTENTION", ((1, 2, 8, 8, 16, True), (1, 2, 1, 16, 16, False)))
    monkeypatch.setattr(microbench, "CONVOLUTIONS", ((1, 4, 8, 4, 3, 2),))
    monkeypatch.setattr(microbench, "VECTORS", ((4, 8),))
    monkeypatch.setattr(microbench, "TABLES", ((10, 4, 3),))
    monkeypatch.setattr(microbench, "OPTIMIZED", (8,))
    outputs = []

    def timer(call):
        outputs.append(call())
        return 5.0, 0.01

    result = microbench.measure(microbench.generate_cases("cpu", ["bf16", "fp32"]), timer)
    families = {row["family"] for row in result["kernels"]}
    assert families >= {"gemm", "attention", "conv", "elementwise", "norm", "softmax", "reduction", "copy", "embedding"}
    assert set(result["kernels"][0]) == {"family", "dtype", "batch", "m", "n", "k", "measured_us", "spread"}
    convolved = next(o for o in outputs if isinstance(o, torch.Tensor) and o.shape == (1, 4, 4, 4))
    row = next(row for row in result["kernels"] if row["family"] == "conv")
    assert row["m"] * row["n"] == convolved.numel()


def test_what_a_gpu_lacks_is_skipped_and_said():
    def ready():
        raise RuntimeError("not on this GPU\nand more")

    result = microbench.measure(iter([({"family": "gemm", "dtype": "fp8"}, ready)]), lambda call: (1.0, 0.0))
    assert result == {"kernels": [], "skipped": {"gemm fp8": "not on this GPU"}}


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bench.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="finds no GPU"):
        microbench.main()
