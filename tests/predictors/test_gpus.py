"""The data base of GPUs: every figure, every name, and what happens to a name nobody knows."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from predictors import gpu as gpu_module
from predictors.errors import AmbiguousGpuError, InvalidGpuFileError, UnknownGpuError
from predictors.gpu_names import identify_gpu, list_gpus, load_gpu, resolve_gpu
from predictors.testing import check_gpu
from tests.tables import find_failures

GPUS = Path(gpu_module.__file__).with_name("gpus")
GIB = 2**30

NAMES = {
    # Drivers' names.
    "Tesla P100-PCIE-16GB": "p100-pcie",
    "Tesla P100-SXM2-16GB": "p100-sxm",
    "Tesla P4": "p4",
    "Tesla T4": "t4",
    "Tesla V100-PCIE-32GB": "v100-pcie-32gb",
    "Tesla V100-SXM2-16GB": "v100-sxm-16gb",
    "Tesla V100-SXM2-32GB": "v100-sxm-32gb",
    "Tesla V100-DGXS-32GB": "v100-sxm-32gb",
    "Tesla V100S-PCIE-32GB": "v100s-pcie-32gb",
    "NVIDIA TITAN V": "titan-v",
    "Quadro RTX 8000": "quadro-rtx-8000",
    "NVIDIA GeForce RTX 2080 Ti": "rtx-2080-ti",
    "NVIDIA GeForce RTX 2080": "rtx-2080",
    "NVIDIA A10": "a10",
    "NVIDIA A10G": "a10g",
    "NVIDIA A30": "a30",
    "NVIDIA A40": "a40",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100-SXM-80GB": "a100-sxm-80gb",
    "NVIDIA A100-PG509-200": "a100-sxm-40gb",
    "NVIDIA A800-SXM4-80GB": "a800-sxm-80gb",
    "NVIDIA A800 80GB PCIe": "a800-pcie-80gb",
    "NVIDIA RTX A6000": "rtx-a6000",
    "NVIDIA GeForce RTX 3060": "rtx-3060",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 3090 Ti": "rtx-3090-ti",
    "NVIDIA RTX A4000": "rtx-a4000",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce RTX 4090 D": "rtx-4090-d",
    "NVIDIA RTX 4000 Ada Generation": "rtx-4000-ada",
    "NVIDIA GeForce RTX 5070 Ti": "rtx-5070-ti",
    "NVIDIA GeForce RTX 5090": "rtx-5090",
    "NVIDIA L4": "l4",
    "NVIDIA L20": "l20",
    "NVIDIA L40": "l40",
    "NVIDIA L40S": "l40s",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "NVIDIA RTX PRO 4500 Blackwell": "rtx-pro-4500",
    "NVIDIA RTX PRO 5000 Blackwell": "rtx-pro-5000-48gb",
    "NVIDIA RTX PRO 5000 72GB Blackwell": "rtx-pro-5000-72gb",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtx-pro-6000-server",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtx-pro-6000-workstation",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "rtx-pro-6000-max-q",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H800": "h800-sxm",
    "NVIDIA H20": "h20",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA H200 NVL": "h200-nvl",
    "NVIDIA GH200 480GB": "gh200-96gb",
    "NVIDIA GH200 144G HBM3e": "gh200-144gb",
    "NVIDIA B200": "b200",
    "NVIDIA B300 SXM6 AC": "b300",
    "NVIDIA GB200": "gb200",
    "NVIDIA GB300": "gb300",
    "AMD Instinct MI100": "mi100",
    "AMD Instinct MI210": "mi210",
    "AMD Instinct MI250X": "mi250x",
    "AMD Instinct MI300A": "mi300a",
    "AMD Instinct MI300X": "mi300x",
    "AMD Instinct MI355X": "mi355x",
    "AMD Radeon RX 7900 XTX": "rx-7900-xtx",
    "AMD Radeon RX 9070 XT": "rx-9070-xt",
    "AMD Radeon RX 9060 XT": "rx-9060-xt-16gb",
    "AMD Radeon AI PRO R9700": "r9700",
    "AMD Radeon 8060S Graphics": "radeon-8060s",
    "AMD Radeon(TM) 8060S Graphics": "radeon-8060s",
    "Intel(R) Arc(TM) B580 Graphics": "arc-b580",
    "Intel(R) Data Center GPU Max 1550": "max-1550",
    "Orin": "jetson-agx-orin-64gb",
    "NVIDIA Thor": "jetson-agx-thor",
    "NVIDIA RTX 6000D": "rtx-6000d",
    # aiconfigurator's systems.
    "a100_sxm": "a100-sxm-80gb",
    "a100_pcie": "a100-pcie-80gb",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "h100_pcie": "h100-pcie",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "rtx_pro_6000_server": "rtx-pro-6000-server",
    # What people type.
    "h100": "h100-sxm",
    "H100 SXM5": "h100-sxm",
    "H100-SXM5-80GB": "h100-sxm",
    "(rtx) 4090": "rtx-4090",
    "4090": "rtx-4090",
    "a100 sxm4 80 GB": "a100-sxm-80gb",
    "A100 PCIe 40": "a100-pcie-40gb",
    "rtx 4060 ti 16": "rtx-4060-ti-16gb",
    "mi300x": "mi300x",
}

# name, SMs, bytes, capability: deviceProperties of real traces first.
DEVICES = {
    ("NVIDIA A100-SXM4-80GB", 108, 84990623744, "8.0"): "a100-sxm-80gb",
    ("NVIDIA A100-PG509-200", 108, 42297524224, "8.0"): "a100-sxm-40gb",
    ("NVIDIA PG509-210", 108, 84990623744, "8.0"): "a100-sxm-80gb",
    ("NVIDIA GH200 120GB", 132, 102005473280, "9.0"): "gh200-96gb",
    ("NVIDIA H100 80GB HBM3", 132, 84929347584, "9.0"): "h100-sxm",
    ("NVIDIA B200", 148, 191503138816, "10.0"): "b200",
    ("NVIDIA GeForce RTX 2080 Ti", 68, 11554586624, "7.5"): "rtx-2080-ti",
    ("NVIDIA GeForce RTX 3060", 28, 12487294976, "8.6"): "rtx-3060",
    ("Tesla V100-DGXS-32GB", 80, 34084028416, "7.0"): "v100-sxm-32gb",
    ("AMD Instinct MI210", 104, 68702699520, "9.0"): "mi210",
    ("", 304, 206141652992, "9.4"): "mi300x",
    ("", 304, 206141652992, "gfx942:sramecc+:xnack-"): "mi300x",
    # HIP counts work-group processors of RDNA; what an APU's GPU has of the memory is a setting.
    ("AMD Radeon RX 7900 XTX", 48, 24560 * 2**20, "11.0"): "rx-7900-xtx",
    ("AMD Radeon RX 9070 XT", 32, int(15.9 * GIB), "gfx1201"): "rx-9070-xt",
    ("AMD Radeon RX 9060 XT", 16, int(7.9 * GIB), "12.0"): "rx-9060-xt-8gb",
    ("AMD Radeon RX 9060 XT", 16, int(15.9 * GIB), "12.0"): "rx-9060-xt-16gb",
    ("Radeon 8060S Graphics", 20, 96 * GIB, "gfx1151"): "radeon-8060s",
    ("Orin", 16, int(61.3 * GIB), "8.7"): "jetson-agx-orin-64gb",
    ("NVIDIA Thor", 20, int(122.8 * GIB), "11.0"): "jetson-agx-thor",
    ("NVIDIA RTX 6000D", 156, 85651 * 2**20, "12.0"): "rtx-6000d",
    ("Intel(R) Data Center GPU Max 1550", 64, 65520 * 2**20, None): "max-1550",
    ("", 80, int(22.0 * GIB), "8.6"): "a10g",
    ("Graphics Device", 58, int(22.0 * GIB), None): "l4",
    ("Tesla T4", 40, int(14.56 * GIB), "7.5"): "t4",
    ("NVIDIA H200", 0, 0, None): "h200-sxm",
    # One name for two boards.
    ("NVIDIA GeForce RTX 3080", 68, int(9.78 * GIB), "8.6"): "rtx-3080-10gb",
    ("NVIDIA GeForce RTX 3080", 70, int(11.76 * GIB), "8.6"): "rtx-3080-12gb",
    ("NVIDIA GeForce RTX 4060 Ti", 34, int(15.7 * GIB), "8.9"): "rtx-4060-ti-16gb",
    # The name's variant is contradicted by the numbers.
    ("NVIDIA A100-SXM4-40GB", 108, 84990623744, "8.0"): "a100-sxm-80gb",
    ("NVIDIA H100", 114, int(79.1 * GIB), "9.0"): "h100-pcie",
    ("AMD Instinct MI250X / MI250", 104, 68702699520, "9.0"): "mi250",
    ("AMD Instinct MI250X/MI250", 110, 68702699520, "9.0"): "mi250x",
}


def test_every_gpu_passes_the_battery():
    assert find_failures(lambda slug: check_gpu(load_gpu(slug)), [(slug,) for slug in list_gpus()]) == {}


def test_every_slug_and_alias_resolves_to_its_own_gpu():
    assert [slug for slug in list_gpus() if resolve_gpu(slug).how != "slug"] == []
    spelled = {alias: slug for slug in list_gpus() for alias in (slug, *load_gpu(slug).aliases)}
    assert {alias: resolve_gpu(alias).gpu.slug for alias in spelled} == spelled


def test_names_resolve():
    assert {name: resolve_gpu(name).gpu.slug for name in NAMES} == NAMES


def test_devices_of_traces_are_identified():
    assert {device: identify_gpu(*device).gpu.slug for device in DEVICES} == DEVICES


def test_a_family_name_takes_the_usual_variant_and_lists_the_others():
    resolution = resolve_gpu("H100")
    assert (resolution.gpu.slug, resolution.how) == ("h100-sxm", "default")
    assert resolution.others == ("h100-nvl", "h100-pcie")
    assert resolve_gpu("a100_sxm").others == ("a100-sxm-40gb",)
    assert resolve_gpu("NVIDIA H100 80GB HBM3").others == ()


@pytest.mark.parametrize(
    ("name", "candidates"),
    {
        "a100": ("a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb"),
        "A100-40": ("a100-pcie-40gb", "a100-sxm-40gb"),
        "V100 32 GB": ("v100-pcie-32gb", "v100-sxm-32gb"),
        "AMD Instinct MI250X / MI250": ("mi250", "mi250x"),
        "RTX PRO 6000": ("rtx-pro-6000-max-q", "rtx-pro-6000-server", "rtx-pro-6000-workstation"),
    }.items(),
)
def test_an_ambiguous_name_lists_its_candidates(name, candidates):
    with pytest.raises(AmbiguousGpuError) as error:
        resolve_gpu(name)
    assert error.value.candidates == candidates
    assert all(slug in str(error.value) for slug in candidates)


@pytest.mark.parametrize(
    "name", ["", "NVIDIA", "sxm", "RTX 3050", "GTX 1080", "RTX 2080 Laptop GPU", "A100-SXM4-40GB MIG 1g.5gb", "B60"]
)
def test_no_name_is_guessed(name):
    with pytest.raises(UnknownGpuError):
        resolve_gpu(name)


def test_a_typo_gets_a_hint():
    with pytest.raises(UnknownGpuError, match=r"Did you mean h100-sxm, .*`tracekit gpus`"):
        load_gpu("H1000")


def test_what_variants_begin_with_suggests_them():
    variants = "rtx-pro-6000-max-q, rtx-pro-6000-server, rtx-pro-6000-workstation"
    with pytest.raises(UnknownGpuError, match=f"Did you mean {variants}"):
        load_gpu("rtx-pro-6000-blackwell")


def test_names_with_a_comma_are_told_how_to_be_given():
    with pytest.raises(UnknownGpuError, match="each by itself"):
        load_gpu("b200,l40s")


def test_numbers_that_fit_several_gpus_are_an_error_when_the_name_is_blank():
    with pytest.raises(AmbiguousGpuError) as error:
        identify_gpu("AMD Radeon Graphics", 104, 68702699520, "9.0")
    assert error.value.candidates == ("mi210", "mi250")


@pytest.mark.parametrize(
    "device",
    [
        ("AMD Instinct MI300X", 38, 24 * GIB, "9.4"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 5 * GIB, "8.0"),
        ("", 7, 3 * GIB, None),
        ("", 0, 0, None),
    ],
)
def test_a_slice_of_a_gpu_is_not_taken_for_the_whole(device):
    with pytest.raises(UnknownGpuError, match=r"\.toml"):
        identify_gpu(*device)


@pytest.mark.parametrize(
    ("device", "slug"),
    [
        (("NVIDIA GeForce RTX 4060 Laptop GPU", 24, 8585216000, "8.9"), "rtx-4060-laptop"),
        (("NVIDIA GeForce RTX 4060", 24, 8585216000, "8.9"), "rtx-4060"),
        (("NVIDIA GeForce RTX 3080 Laptop GPU", 48, 8589934592, "8.6"), "rtx-3080-laptop-8gb"),
        (("NVIDIA GeForce RTX 3080 Laptop GPU", 48, 17179344896, "8.6"), "rtx-3080-laptop-16gb"),
        (("NVIDIA GeForce RTX 3080", 68, 10505486336, "8.6"), "rtx-3080-10gb"),
    ],
)
def test_a_laptops_gpu_is_not_the_board_of_its_name(device, slug):
    assert identify_gpu(*device).gpu.slug == slug


def test_an_unknown_laptop_gpu_is_no_slice():
    with pytest.raises(UnknownGpuError, match="power that its maker allows"):
        identify_gpu("NVIDIA RTX 500 Ada Generation Laptop GPU", 16, 4 * GIB, "8.9")


def test_an_identified_variant_says_what_the_name_meant():
    resolution = identify_gpu("NVIDIA A100-SXM4-40GB", 108, 84990623744, "8.0")
    assert (resolution.how, resolution.others) == ("properties", ("a100-sxm-40gb",))


def test_peaks_worked_by_hand():
    # SMs x clock x FLOPs per clock and SM
    assert load_gpu("a100-sxm-80gb").peak_flops("bf16") == pytest.approx(108 * 1.410e9 * 2048, rel=0.01)
    assert load_gpu("rtx-4090").peak_flops("fp16") == pytest.approx(128 * 2.520e9 * 512, rel=0.01)
    assert load_gpu("mi300x").peak_flops("fp32") == pytest.approx(304 * 2.100e9 * 256, rel=0.01)


def test_peak_takes_the_best_unit_for_the_dtype():
    def tflops(slug: str, dtype: str) -> float:
        return round((load_gpu(slug).peak_flops(dtype) or 0) / 1e12, 1)

    assert tflops("h100-sxm", "fp32") == 66.9, "TF32 is not FP32"
    assert tflops("h100-sxm", "fp64") == 66.9
    assert tflops("h100-sxm", "fp8_block") == tflops("h100-sxm", "fp8") == 1978.9
    assert tflops("b200", "nvfp4") == 9000
    assert tflops("mi210", "fp32") == 45.3, "CDNA has matrix units for FP32"
    assert tflops("p100-sxm", "fp16") == 21.2, "without tensor cores the CUDA cores do it"


def test_what_has_no_units_has_no_peak():
    assert not load_gpu("p100-sxm").supports("bf16")
    assert not load_gpu("p4").supports("fp16")
    assert not load_gpu("h100-sxm").supports("nvfp4")
    assert not load_gpu("l40s").supports("mxfp8"), "fp8 without scales of blocks"
    assert not load_gpu("mi355x").supports("nvfp4"), "its units read scales that are powers of two"
    assert load_gpu("mi355x").supports("mxfp4")
    assert load_gpu("h100-sxm").peak_flops("complex64") is None


def test_units():
    h100 = load_gpu("h100-sxm")
    assert h100.memory_bytes == 80 * GIB
    assert h100.l2_bytes == h100.last_level_cache_bytes == 50 * 2**20
    assert h100.shared_memory_per_sm_bytes == 228 * 2**10
    assert h100.pcie_gbps == pytest.approx(63, rel=0.01)
    assert load_gpu("mi300x").last_level_cache_bytes == 256 * 2**20
    assert load_gpu("l40s").link is None


def test_a_gpu_is_a_value():
    assert load_gpu("l4") is load_gpu("NVIDIA L4")
    assert hash(load_gpu("l4")) == hash(dataclasses.replace(load_gpu("l4")))
    with pytest.raises(TypeError):
        load_gpu("l4").tensor_tflops["fp16"] = 1.0


def test_importing_reads_no_file():
    code = (
        "import sys, predictors.gpu_names as g; "
        "sys.exit(g._load_aliases.cache_info().misses + g._load_known_gpu.cache_info().misses)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=GPUS.parents[1])


def own_file(folder: Path, *edits: tuple[str, str], name: str = "My_GPU") -> str:
    text = (GPUS / "l4.toml").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return str(path)


def test_a_users_own_file(tmp_path):
    path = own_file(tmp_path, ("sms = 58", "sms = 60"), ('name = "NVIDIA L4"', 'name = "Mine"'))
    resolution = resolve_gpu(path)
    assert (resolution.how, resolution.gpu.slug, resolution.gpu.sms) == ("file", "my-gpu", 60)
    assert load_gpu(path).name == "Mine"
    assert "my-gpu" not in list_gpus()


def test_other_figures_need_another_name(tmp_path):
    """Else it would be taken for the known GPU: what a trace of that measured would be its prediction."""
    assert load_gpu(own_file(tmp_path, name="l4")) == load_gpu("l4")
    with pytest.raises(InvalidGpuFileError, match="l4 is a known GPU with other figures; give the file another name"):
        load_gpu(own_file(tmp_path, ("sms = 58", "sms = 60"), name="L4"))


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (("sms = 58\n", ""), "missing key compute.sms"),
        (("sms = 58", 'sms = "58"'), "compute.sms must be a whole number, not '58'"),
        (("sms = 58", "sms = 0"), "compute.sms must be above 0"),
        (("fp8 =", "fp9 ="), "unknown key tensor_tflops.fp9; known are fp64"),
        (("fp32 =", "tf32 ="), "missing key vector_tflops.fp32"),
        (("bandwidth_gbps = 300", "bandwidth_gbps = nan"), "memory.bandwidth_gbps must be above 0 and finite, not nan"),
        (("bandwidth_gbps = 300", "bandwidth_gbps = inf"), "memory.bandwidth_gbps must be above 0 and finite, not inf"),
        (("pcie_gen = 4", "pcie_gen = 44"), "interconnect.pcie_gen must be one of"),
        (("aliases = [", "aliases = [4, "), "aliases must be a list of strings, not [4, "),
        (('"compute" = "datasheet"', '"compute" = ["datasheet"]'), "sourced.compute must be a string"),
        (('vendor = "nvidia"', 'vendor = "NVIDIA"'), "vendor must be one of nvidia, amd, intel, not 'NVIDIA'"),
        (('compute_capability = "8.9"', 'compute_capability = "sm_89"'), "compute_capability must look like '9.0'"),
        (("[memory]", "[[memory]]"), "memory must be a table"),
        (("[memory]", "[memory"), "not TOML"),
    ],
)
def test_a_broken_file_says_what_is_wrong_and_where(tmp_path, edit, problem):
    with pytest.raises(InvalidGpuFileError) as error:
        load_gpu(own_file(tmp_path, edit))
    assert problem in str(error.value)
    assert "My_GPU.toml" in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidGpuFileError, match="no such file"):
        load_gpu(str(tmp_path / "none.toml"))


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InvalidGpuFileError, match="can't be read: Is a directory"):
        load_gpu(str(tmp_path / "folder.toml"))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tensor_tflops": {"fp16": 242.0}}, r"tensor_tflops.fp16 = 242.0, but .* is 121.* sparse"),
        ({"boost_clock_mhz": 20400}, "boost_clock_mhz = 20400 is outside"),
        ({"bandwidth_gbps": 30_000}, "ridge"),
        ({"aliases": ("a100",)}, "alias 'a100' already means a100-pcie-40gb or"),
        ({"aliases": ("NVIDIA H100 PCIe",)}, "already means h100-pcie"),
        ({"sources": {"memory.size_gb": "datasheet"}}, "memory.l2_mib has no source; .* tensor_tflops.int8 has no"),
        ({"peak_notes": {"tensor_tflops.fp16": "why"}}, "peak_note is stale"),
        ({"link": "nvlink4"}, "don't go together"),
        ({"slug": "L4 "}, "lower-case words"),
        ({"vendor": "amd"}, "does not look like amd's; warp_size is 32"),
        ({"vendor": "matrox"}, "vendor 'matrox' is none of"),
        ({"compute_capability": "9.9"}, "no rate is known for compute capability 9.9"),
        ({"last_level_cache_bytes": 1}, "last_level_cache_mib is below l2_mib"),
    ],
)
def test_the_battery_finds_a_wrong_figure(change, problem):
    with pytest.raises(AssertionError, match=problem):
        check_gpu(dataclasses.replace(load_gpu("l4"), **change))
