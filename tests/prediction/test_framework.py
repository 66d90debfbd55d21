"""A trace whose serving engine and its version the user tells."""

import polars as pl
import pytest

import tracekit as tk
from predictors.columns import build_law_inputs, prepare_kernels
from tests.codes import has_code
from tracekit.errors import RequestError
from tracekit.parallelism.relayout import add_measured_times
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace


def build_trace() -> Trace:
    """A product by cuBLAS and an addition."""
    builder = TraceBuilder()
    builder.op("aten::mm", 0, 20, dims=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
    builder.kernel("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", 20, 900, launch=5)
    builder.op("aten::add", 930, 20, dims=[[4096, 4096], [4096, 4096], []], types=["float", "float", "Scalar"])
    builder.kernel("vectorized_elementwise_kernel", 960, 150, launch=940)
    return builder.load()


def tell(framework: str | None) -> pl.DataFrame:
    return prepare_kernels(add_measured_times(prepare_run(build_trace(), framework=framework).program))


def test_products_are_the_engines_and_ran_in_a_job() -> None:
    """Nothing comes on top: benchmarks of engines read their weights from memory, as jobs do."""
    product, addition = tell("vllm==0.19.0").select("framework", "engine", "release", "in_job").iter_rows()
    assert product == ("cublas", "vllm", 1900.0, True)
    assert addition == (None, None, None, True)
    inputs = build_law_inputs(tell("vllm==0.19.0").head(1))
    assert inputs.numbers["cold"].tolist() == [0]


def test_without_it_the_names_tell_the_library() -> None:
    product, addition = tell(None).select("framework", "engine", "in_job").iter_rows()
    assert product == ("cublas", None, True)
    assert addition == (None, None, True)


def test_what_is_told_is_predicted_with() -> None:
    untold, told = (
        tk.predict(build_trace(), gpu="l40s", framework=name, host="same")["l40s"] for name in (None, "vllm==0.19.0")
    )
    assert told.low_us < told.step.step_time_us < told.high_us
    assert told.step.kernel_time_us != untold.step.kernel_time_us
    assert told.high_us / told.low_us <= untold.high_us / untold.low_us


@pytest.mark.parametrize("name", ["torch", "vllm==main", ""])
def test_what_is_no_engine_is_refused(name: str) -> None:
    with pytest.raises(RequestError, check=has_code("framework-unknown")):
        tk.predict(build_trace(), gpu="l40s", framework=name)
