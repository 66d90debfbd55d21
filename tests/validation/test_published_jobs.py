"""Rebuilt published jobs: models as large as theirs, kernels whose work tracekit knows."""

import polars as pl
import pytest
import torch

from tests.validation.published_jobs import jobs, language, llama, mpt, vision
from tests.validation.published_jobs.jobs import Job, capture_calls, tabulate_job_kernels
from tracekit.capturing.calls import Call
from tracekit.capturing.timeline import build_trace
from tracekit.run import prepare_run


@pytest.mark.parametrize(
    ("model", "millions"),
    [
        *(("resnet50", 25.56), ("seresnet50", 28.09), ("vgg16", 138.36), ("densenet121", 7.98)),
        *(("mobilenetv2_100", 3.50), ("efficientnet_b0", 5.29), ("convnext_tiny", 28.59)),
        *(("vit_base_patch16_224", 86.57), ("mixer_b16_224", 59.88)),
    ],
)
def test_models_are_as_large_as_published(model: str, millions: float) -> None:
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in vision.MODELS[model]().parameters())
    assert parameters / 1e6 == pytest.approx(millions, abs=0.005)


@pytest.mark.parametrize(("name", "parameters"), [("mpt-125m", 125311488), ("mpt-7b", 6658859008)])
def test_decoders_are_as_large_as_published(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = mpt.Decoder(f"{name}/2048", recomputes=False)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("llama-7b", 6738415616), ("llama-7b-compiled", 6738415616), ("llama-70b", 68976648192)],
)
def test_llamas_are_as_large_as_published(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = llama.Llama(f"{name}/4096", recomputes=False)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.heavy
def test_a_compiled_llama_has_the_same_products_and_fewer_bytes_between_them() -> None:
    names = ("llama-7b/128", "llama-7b-compiled/128")
    eager, compiled = (tabulate_job_kernels(Job(name, "train", "bf16"), 1) for name in names)
    products = [table.filter(pl.col("family") == "gemm").select("m", "n", "k") for table in (eager, compiled)]
    assert products[0].equals(products[1])
    assert products[0].height == 3 * (7 * 32 + 1)
    assert float(compiled["bytes"].sum()) < 0.7 * float(eager["bytes"].sum())


@pytest.mark.heavy
def test_a_decoder_that_recomputes_runs_its_blocks_forward_twice_but_for_what_none_asks_for_again() -> None:
    steps = ("infer", "train", "recompute")
    families = [tabulate_job_kernels(Job("mpt-125m/512", step, "bf16"), 2)["family"] for step in steps]
    assert [(family == "attention").sum() for family in families] == [12, 24, 36]
    assert [(family == "gemm").sum() for family in families] == [4 * 12 + 1, 3 * 49, 3 * 49 + 3 * 12]


def test_the_table_has_models_and_gpus_that_are_known() -> None:
    rows = list(jobs.read_published_jobs())
    of_decoders = {*mpt.SIZES, *llama.SIZES, *(f"{name}{llama.COMPILED}" for name in llama.SIZES)}
    assert {row.job.model.split("/")[0] for row in rows} <= {*vision.MODELS, *language.MODELS, *of_decoders}
    assert len({(row.source, row.job, row.gpu) for row in rows}) == len(rows) > 100


def test_autocast_runs_convolutions_in_half_and_norms_of_layers_in_single_precision() -> None:
    seen = {call.op: call.types[0] for call in capture_calls(Job("vit_tiny_patch16_224", "infer", "amp"), 2)}
    assert seen["aten::convolution"] == seen["aten::_scaled_dot_product_flash_attention"] == "c10::Half"
    assert seen["aten::native_layer_norm"] == "float"


def test_a_training_step_has_three_times_the_products_of_an_inference() -> None:
    found = {step: tabulate_job_kernels(Job("resnet18", step, "fp32"), 2) for step in ("infer", "train")}
    assert all(table.select(pl.col("bytes", "m").is_null().all()).row(0) == (False, False) for table in found.values())
    product = 2 * pl.col("batch").fill_null(1) * pl.col("m") * pl.col("n") * pl.col("k")
    flops = {step: float(table.select(product.sum()).item())
             for step, table in found.items()}  # fmt: skip
    of_images = 2 * 2 * 64 * 3 * 49 * 112 * 112
    assert flops["infer"] == pytest.approx(2 * 2 * 1.814e9, rel=0.001)
    assert flops["train"] == 3 * flops["infer"] - of_images
    assert found["train"].filter(pl.col("direction") == "wgrad").height == 20


def test_a_step_is_its_hosts_or_its_gpus() -> None:
    three = [Call("aten::relu", [[8]], ["float"], [""], ("vectorized_elementwise_kernel",))] * 3
    by_host, by_gpu = (prepare_run(build_trace(three, [us] * 3, host_us=50).load(), source_gpu="t4") for us in (2, 100))
    assert by_gpu.measured_step.step_time_us == pytest.approx(0.4 * 50 + 5 + 3 * 100 + 5)
    # The wait ends a moment after the last kernel.
    assert by_host.measured_step.step_time_us == pytest.approx(3 * 50 + 5, abs=0.02)
