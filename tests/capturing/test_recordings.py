"""Recordings without GPU activity, and execution traces alone, as programs."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tests.codes import has_code
from tracekit.comm import ClusterError
from tracekit.errors import CaptureError, NoGpuActivityError, RequestError
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile  # noqa: E402

WIDTH, WORDS, ROWS = 64, 128, 32


def build_model() -> nn.Module:
    """Build a small classifier of words."""
    return nn.Sequential(
        nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WORDS)
    )


def train(steps: int = 1) -> Callable[[], None]:
    """Return a function that trains the model on the CPU."""
    model, words = build_model(), torch.randint(0, WORDS, (ROWS,))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            functional.cross_entropy(model(words), words).backward()
            optimizer.step()

    step()
    return step


def record(path: Path, step: Callable[[], object], *, shapes: bool = True) -> Path:
    """Record the CPU's ops of a step."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=shapes) as profiler:
        step()
    profiler.export_chrome_trace(str(path))
    return path


def count_ops(trace: Trace) -> dict[tuple[str, str], int]:
    """Count the kernels by op and phase, without those of the optimizer."""
    table = prepare_run(trace).kernels.filter(pl.col("phase") != "optimizer")
    return {(op, phase): count for op, phase, count in table.group_by("op", "phase").len().iter_rows()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Record a training step on the CPU."""
    return tk.load(record(tmp_path_factory.mktemp("cpu") / "cpu.json", train()))


def test_a_run_on_a_cpu_has_the_kernels_of_the_captured_program(recorded: Trace) -> None:
    with torch.device("meta"):
        model, words = build_model(), torch.zeros(ROWS, dtype=torch.int64)
    captured = tk.capture(lambda x: functional.cross_entropy(model(x), x), words, training=True)
    here, there = count_ops(recorded), count_ops(captured)
    # The first gradient, 1, and gradients that add up, are other ops there.
    ignored = {"aten::fill_", "aten::ones_like", "aten::add", "aten::add_"}
    assert {key: value for key, value in here.items() if key[0] not in ignored} == {
        key: value for key, value in there.items() if key[0] not in ignored
    }


def test_products_have_their_sizes_phases_and_types(recorded: Trace) -> None:
    products = prepare_run(recorded).kernels.filter(family="gemm")
    assert products.filter(phase="forward").select("m", "n", "k").rows() == [
        (ROWS, WIDTH, WIDTH),
        (ROWS, WORDS, WIDTH),
    ]
    assert products.filter(phase="backward").height == 4
    assert set(products["dtype"]) == {"fp32"}


def test_an_optimizer_goes_through_all_parameters_at_once(recorded: Trace) -> None:
    updates = prepare_run(recorded).kernels.filter(phase="optimizer")
    assert updates.height < 15
    assert set(updates["family"]) == {"optimizer"}
    parameters = sum(one.numel() for one in build_model().parameters())
    (moments,) = updates.filter(op="aten::_foreach_lerp_").to_dicts()
    assert moments["bytes"] == 3 * 4 * parameters


def test_it_says_that_nothing_was_measured(recorded: Trace) -> None:
    report = tk.report(recorded)
    assert report.source.label == "captured"
    assert "nothing-measured" in {one.code for one in report.warnings}
    (predicted,) = tk.predict(recorded, gpu="l40s").targets
    assert predicted.low_us < predicted.step.step_time_us < predicted.high_us


def test_steps_are_kept_apart(tmp_path: Path) -> None:
    step = train()

    def run() -> None:
        for number in range(3):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                step()

    run_of = prepare_run(tk.load(record(tmp_path / "cpu.json", run)))
    assert run_of.measured_step.steps == 2
    assert run_of.kernels.group_by("step").len()["len"].n_unique() == 1


def test_an_execution_trace_alone_has_the_same_kernels(recorded: Trace, tmp_path: Path) -> None:
    step, path = train(), tmp_path / "step.et.json"
    observer = ExecutionTraceObserver()
    observer.register_callback(str(path))
    observer.start()
    step()
    observer.stop()
    observer.unregister_callback()
    alone = tk.load(path)
    assert count_ops(alone) == count_ops(recorded)
    assert prepare_run(alone).kernels.filter(phase="optimizer").height > 5


def test_ops_without_shapes_tell_nothing(tmp_path: Path) -> None:
    with pytest.raises(NoGpuActivityError, check=has_code("trace-without-gpu")):
        tk.load(record(tmp_path / "cpu.json", train(), shapes=False))


def test_ops_without_values_are_refused(tmp_path: Path) -> None:
    path = TraceBuilder(device=None).op("aten::relu", 0, 10, dims=[[8]], types=["float"]).save(tmp_path / "cpu.json")
    with pytest.raises(CaptureError, check=has_code("recording-without-values")):
        tk.load(path)


def test_a_recording_without_kernels_is_refused_as_before(tmp_path: Path) -> None:
    builder = TraceBuilder(device=None).op(
        "aten::view", 0, 10, dims=[[8], []], types=["float", ""], concrete=["", "[8]"]
    )
    with pytest.raises(NoGpuActivityError, check=has_code("trace-without-gpu")):
        tk.load(builder.save(tmp_path / "cpu.json"))


def build_ops(*names: str, inside: str = "") -> TraceBuilder:
    """Build a recording of ops on 1,024 numbers, one after the other, the first ones inside an annotation."""
    builder = TraceBuilder(device=None)
    if inside:
        builder.annotation(inside, 0, 15)
    for number, name in enumerate(names):
        builder.op(name, 20 * number, 10, dims=[[1024]], types=["float"], concrete=[""])
    return builder


def test_a_data_loaders_work_stays_on_the_cpu(tmp_path: Path) -> None:
    builder = build_ops("aten::relu", "aten::sin", inside="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    assert prepare_run(tk.load(builder.save(tmp_path / "cpu.json"))).kernels["op"].to_list() == ["aten::sin"]


def test_a_librarys_op_is_a_kernel_of_unknown_work(tmp_path: Path) -> None:
    trace = tk.load(build_ops("aten::relu", "mylib::fused_thing").save(tmp_path / "cpu.json"))
    assert prepare_run(trace).kernels["op"].to_list() == ["aten::relu", "mylib::fused_thing"]
    assert "captured-work-unknown" in {one.code for one in tk.report(trace).warnings}


def test_collectives_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    builder = build_ops("aten::relu", "record_param_comms", "aten::sin")
    report = tk.report(tk.load(builder.save(tmp_path / "cpu.json")))
    assert "captured-collectives-missing" in {one.code for one in report.warnings}


def test_recurrent_layers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, check=has_code("recurrence-unknown")):
        tk.load(build_ops("aten::lstm").save(tmp_path / "cpu.json"))


@pytest.mark.parametrize(
    ("dtype", "masked", "op"),
    [
        ("c10::BFloat16", False, "aten::_scaled_dot_product_flash_attention"),
        ("c10::BFloat16", True, "aten::_scaled_dot_product_efficient_attention"),
        ("float", False, "aten::_scaled_dot_product_efficient_attention"),
    ],
)
def test_attention_is_the_kernel_that_cuda_would_choose(tmp_path: Path, dtype: str, masked: bool, op: str) -> None:
    shape, mask = [2, 8, 512, 64], [2, 1, 512, 512] if masked else []
    dims = [shape, shape, shape, mask, [], [], [], []]
    types = [dtype] * 3 + [dtype if masked else "", "Scalar", "Scalar", "", "Scalar"]
    concrete = ["", "", "", "", "0.", "False" if masked else "True", "", "False"]
    name = "aten::scaled_dot_product_attention"
    builder = TraceBuilder(device=None).op(name, 0, 50, dims=dims, types=types, concrete=concrete)
    (row,) = prepare_run(tk.load(builder.save(tmp_path / "cpu.json"))).kernels.to_dicts()
    assert (row["op"], row["family"]) == (op, "attention")
    assert (row["batch"], row["heads"], row["q_len"], row["head_dim"]) == (2, 8, 512, 64)
    assert row["causal"] is not masked


def test_lists_of_tensors_have_the_type_of_what_came_before(tmp_path: Path) -> None:
    builder = TraceBuilder(device=None)
    builder.op("aten::relu", 0, 10, dims=[[64, 64]], types=["c10::Half"], concrete=[""])
    lists = [[[64, 64], [64, 64]], []]
    builder.op("aten::cat", 20, 10, dims=lists, types=["TensorList", "Scalar"], concrete=["", "0"])
    kernels = prepare_run(tk.load(builder.save(tmp_path / "cpu.json"))).kernels
    assert kernels.filter(op="aten::cat")["bytes"].to_list() == [2 * 2 * 64 * 64 * 2]


CPU = "epyc-9654:1"
"""A CPU that is named as the source; which one doesn't matter."""


def test_a_recording_on_a_named_cpu_keeps_what_its_ops_took(tmp_path: Path) -> None:
    path = record(tmp_path / "cpu.json", train(3))
    trace = tk.load(path)
    rank = trace.recording
    assert rank is not None
    (there,) = tk.predict(trace, gpu=CPU, source_gpu=CPU).targets
    assert there.step.idle_us <= 0.02 * there.step.step_time_us  # nothing runs beside the ops
    assert (there.kernels["method"] == "measured").all()
    twice, more, other = (
        tk.predict(trace, gpu=target, source_gpu=CPU, **asked).targets[0].step.step_time_us
        for target, asked in ((CPU, {}), (CPU, {"batch": 1024}), ("xeon-8480:1", {}))
    )
    assert twice == there.step.step_time_us
    assert more > 1.5 * twice
    assert 0.05 * twice < other < 20 * twice


def test_a_cpu_is_refused_what_it_has_not(recorded: Trace) -> None:
    for target, asked, code in (
        ("h100-sxm", {"source_gpu": CPU}, "cpu-times-for-gpu"),
        (CPU, {"power_cap": "300W"}, "cpu-without-option"),
        (CPU, {"host": "typical"}, "cpu-without-option"),
    ):
        with pytest.raises(RequestError, check=has_code(code)):
            tk.predict(recorded, gpu=target, **asked)
    with pytest.raises(ClusterError, check=has_code("cluster-of-cpus")):
        tk.predict(recorded, cluster="2xepyc-9654")
