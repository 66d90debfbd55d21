"""The rates in Tensile's logic files: sizes by columns, rates among percentages, copies between GPUs."""

from __future__ import annotations

import pytest

from predictors.training.datasets import load_datasets

HEAD = """- {{MinimumRequiredVersion: 4.33.0}}
- aquavanjaram
- {architecture}
- [Device 0049, Device 0050]
- Activation: true
  ActivationComputeDataType: 0
  ComputeDataType: 0
  DataType: {dtype}
  DestDataType: {dtype}
- - 1LDSBuffer: 0
- [2, 3, 0, 1]
"""
MI210 = "{Architecture: gfx90a, CUCount: 104}"


@pytest.fixture
def write(tmp_path):
    def to(name, architecture, dtype, *sizes):
        lines = [
            f"{'- ' if i == 0 else '  '}- - [{size}]\n    - [{i}, {rate}]\n" for i, (size, rate) in enumerate(sizes)
        ]
        path = tmp_path / "hipBLASLt/library/src/amd_detail/rocblaslt/src/Tensile/Logic/asm_full" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD.format(architecture=architecture, dtype=dtype) + "".join(lines) + "- null\n")

    return to


def test_a_size_is_by_columns_and_its_rate_in_gflops(tmp_path, write):
    write("gfx942/a_BBS_BH.yaml", "gfx942", 7, ("2048, 1152, 2, 1000", 400000.0), ("512, 512, 1, 512", 61.5))
    rows = load_datasets(tmp_path)
    found = rows.select("gpu", "dtype", "framework", "source", "m", "n", "batch", "k", "latency_us").rows()
    assert found == [
        ("mi300x", "bf16", "hipblaslt", "tuned", 1152, 2048, 2, 1000, 2 * 2 * 2048 * 1152 * 1000 / 400000.0 / 1e3)
    ]


def test_copies_between_gpus_and_mixed_operands_are_left_out(tmp_path, write):
    for folder, architecture in (("gfx942", "gfx942"), ("110CU", "gfx90a")):
        write(f"{folder}/a_HHS_BH.yaml", architecture, 4, ("4096, 4096, 1, 4096", 100000.0))
    with_copies = (("4096, 4096, 1, 4096", 100000.0), ("2048, 2048, 1, 2048", 110000.0))
    write("gfx942/c_HHS_BH.yaml", "gfx942", 4, *with_copies)
    write("gfx942/b_HHS_BH.yaml", "gfx942", 4, ("1024, 1024, 1, 1024", 200000.0))
    write("gfx942/a_F8H_HHS_BH.yaml", "gfx942", 4, ("512, 1024, 1, 1024", 200000.0))
    assert load_datasets(tmp_path).select("m", "n", "k").rows() == [(1024, 1024, 1024)]


def test_a_file_of_long_times_only_was_timed_with_launches(tmp_path, write):
    write("104CU/a_HHS_BH.yaml", MI210, 4, ("256, 512, 1, 256", 2189.5), ("4000, 1024, 1, 11190", 132062.0))
    write("104CU/b_SB.yaml", MI210, 0, ("256, 512, 1, 256", 1800.0))
    write("104CU/c_BBS_BH.yaml", MI210, 7, ("4000, 4000, 1, 4000", 132062.0))
    rows = load_datasets(tmp_path).select("dtype", "source", "k")
    assert set(rows.iter_rows()) == {("fp16", "eager", 256), ("fp16", "eager", 11190), ("bf16", "tuned", 4000)}
