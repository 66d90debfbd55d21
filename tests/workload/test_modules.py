"""Kernels find the module and the Python function that launched them, backward kernels those of their forward op."""

import io

import polars as pl
import pytest

import tracekit
from tracekit.errors import TracekitError
from tracekit.ingest import cache, load_bytes
from tracekit.ingest.decode import decode
from tracekit.messages.traces import STACKS_NOT_RECORDED
from tracekit.reporting.sections.groups import build_module_times
from tracekit.testing import TraceBuilder
from tracekit.workload import module_paths
from tracekit.workload.kernel_table import build_kernel_table

AUTOGRAD_THREAD = 101


def test_a_graph_kernel_has_the_module_of_its_annotation():
    """PyTorch's torch.cuda._annotate_cuda_graph_trace writes it beside the node's id."""
    noted = {"graph node id": 3, "module_fqn": "layers.0.attention.wq"}
    builder = TraceBuilder().kernel("gemm", 10, 100, launch=0, call="cudaGraphLaunch", **noted)
    table = build_kernel_table(builder.kernel("norm", 120, 20, launch=6).load().rank())
    assert table["module"].to_list() == ["layers.0.attention.wq", None]


def two_layers() -> TraceBuilder:
    """A model of two layers with two products each, and a head; module numbers as PyTorch counts them, by class."""
    return (
        TraceBuilder()
        .python("train.py(40): <module>", 0, 1000)
        .python("nn.Module: Net_0", 10, 400)
        .python("net.py(9): forward", 11, 398)
        .python("nn.Module: Layer_0", 20, 100)
        .python("nn.Module: Linear_0", 30, 20)
        .python("nn.Module: Linear_1", 60, 20)
        .python("nn.Module: Layer_1", 150, 100)
        .python("nn.Module: Linear_2", 160, 20)
        .python("nn.Module: Linear_3", 190, 20)
        .python("nn.Module: Head_0", 300, 50)
        .kernel("first of layer 0", 500, 4, launch=32)
        .kernel("second of layer 0", 510, 4, launch=62)
        .kernel("sum of layer 1", 520, 4, launch=240)
        .kernel("first of layer 1", 530, 4, launch=165)
        .kernel("head", 540, 4, launch=310)
        .kernel("model", 550, 4, launch=390)
        .kernel("outside", 560, 4, launch=600)
    )


def told(builder: TraceBuilder, column: str = "module") -> dict[str, str | None]:
    return dict(build_kernel_table(builder.load(stacks=True).rank()).select("name", column).iter_rows())


def test_paths_tell_layers_apart_and_name_their_parts_alike():
    assert told(two_layers()) == {
        "first of layer 0": "Net.Layer_0.Linear_0",
        "second of layer 0": "Net.Layer_0.Linear_1",
        "sum of layer 1": "Net.Layer_1",
        "first of layer 1": "Net.Layer_1.Linear_0",
        "head": "Net.Head",
        "model": "Net",
        "outside": None,
    }


def test_python_is_not_read_unless_asked_for():
    rank = two_layers().load().rank()
    assert rank.frames.is_empty()
    assert build_kernel_table(rank).select("module", "python_line").null_count().row(0) == (7, 7)
    assert rank.warnings == two_layers().load(stacks=True).rank().warnings


def test_both_decoders_read_the_same_frames():
    data = two_layers().to_json()
    quick = decode(io.BytesIO(data), "a", small_bytes=0, stacks=True).frames
    assert quick.equals(load_bytes(data, "a", stacks=True).rank().frames)
    assert quick.height == 10
    assert decode(io.BytesIO(data), "a", small_bytes=0).frames.is_empty()


def test_traces_with_and_without_stacks_are_cached_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "SMALLEST_FILE_BYTES", 0)
    path = two_layers().save(tmp_path / "trace.json")
    read = [tracekit.load(path, stacks=stacks).rank().frames.height for stacks in (False, True, False, True)]
    assert read == [0, 10, 0, 10]
    assert cache.measure_usage().entries == 2


def test_stacks_that_were_not_recorded_are_said(tmp_path):
    path = TraceBuilder().kernel("k", 20, 5, launch=1).save(tmp_path / "trace.json")
    assert STACKS_NOT_RECORDED() in tracekit.load(path, stacks=True).rank().warnings
    assert STACKS_NOT_RECORDED() not in tracekit.load(path).rank().warnings


def test_the_innermost_function_that_is_neither_pytorchs_nor_pythons():
    builder = (
        TraceBuilder()
        .python("/opt/conda/lib/python3.11/site-packages/model/block.py(7): forward", 0, 100)
        .python("contextlib.py(100): inner", 1, 98)
        .python("/usr/lib/python3.12/functools.py(9): wrapper", 2, 96)
        .python("C:/Python311/Lib/functools.py(9): wrapper", 2.5, 95)
        .python("torch/nn/functional.py(20): linear", 3, 94)
        .python("/opt/conda/lib/python3.11/site-packages/torch/_ops.py(9): __call__", 4, 92)
        .python("/tmp/torchinductor_me/ab/cabc.py(33): call", 5, 90)
        .python("<built-in method linear of type object at 0x7f>", 6, 88)
        .kernel("gemm", 200, 5, launch=10)
        .python("codec/decode.py(3): run", 60, 10)
        .kernel("of a package with a library's beginning", 210, 5, launch=61)
    )
    assert told(builder, "python_line") == {
        "gemm": "model/block.py(7): forward",
        "of a package with a library's beginning": "codec/decode.py(3): run",
    }


def test_backward_kernels_belong_to_the_module_of_their_forward_op():
    builder = (
        TraceBuilder()
        .python("train.py(9): step", 0, 900)
        .python("nn.Module: Net_0", 0, 100)
        .python("nn.Module: Linear_0", 5, 30)
        .op("aten::linear", 10, 20, **{"Sequence number": 4, "Fwd thread id": 0})
        .op("aten::addmm", 12, 16, **{"Sequence number": 5, "Fwd thread id": 0})
        .python("nn.Module: ReLU_0", 40, 30)
        .op("aten::relu", 45, 20, **{"Sequence number": 6, "Fwd thread id": 0})
    )
    for name, number, start, thread in (
        ("ReluBackward0", 6, 200, AUTOGRAD_THREAD),
        ("AddmmBackward0", 5, 300, AUTOGRAD_THREAD),
        ("torch::autograd::AccumulateGrad", None, 400, AUTOGRAD_THREAD),
        ("on one thread", 5, 500, 100),
        ("of no forward op", 99, 600, AUTOGRAD_THREAD),
    ):
        numbered = {} if number is None else {"Sequence number": number, "Fwd thread id": 1}
        node = f"autograd::engine::evaluate_function: {name}"
        builder.op(node, start, 40, thread=thread, **numbered).kernel(
            name, start + 50, 5, launch=start + 5, thread=thread
        )
    assert told(builder, "module") == {
        "ReluBackward0": "Net.ReLU",
        "AddmmBackward0": "Net.Linear",
        "torch::autograd::AccumulateGrad": None,
        "on one thread": "Net.Linear",
        "of no forward op": None,
    }
    assert told(builder, "python_line")["ReluBackward0"] == "train.py(9): step"


def test_of_equal_numbers_the_latest_before_the_backward_op_is_meant():
    numbered = {"Sequence number": 5, "Fwd thread id": 0}
    builder = (
        TraceBuilder()
        .python("nn.Module: Old_0", 0, 20, thread=7)
        .op("aten::mm", 5, 10, thread=7, **numbered)
        .python("nn.Module: New_0", 100, 20)
        .op("aten::mm", 105, 10, **numbered)
        .op("autograd::engine::evaluate_function: MmBackward0", 200, 50, thread=AUTOGRAD_THREAD, **numbered)
        .kernel("gradient", 300, 5, launch=210, thread=AUTOGRAD_THREAD)
        .python("nn.Module: Later_0", 400, 20)
        .op("aten::mm", 405, 10, **numbered)
    )
    assert told(builder, "module") == {"gradient": "New"}


def test_recomputed_activations_keep_the_path_of_their_layer():
    numbered = {"Sequence number": 5, "Fwd thread id": 0}
    builder = (
        two_layers()
        .op("aten::mm", 165, 5, **numbered)
        .op("autograd::engine::evaluate_function: CheckpointBackward", 600, 90, thread=AUTOGRAD_THREAD, **numbered)
        .python("nn.Module: Layer_1", 610, 70, thread=AUTOGRAD_THREAD)
        .python("nn.Module: Linear_3", 620, 20, thread=AUTOGRAD_THREAD)
        .kernel("recomputed", 700, 5, launch=625, thread=AUTOGRAD_THREAD)
    )
    assert told(builder, "module")["recomputed"] == "Net.Layer_1.Linear_1"


def test_times_of_whole_microseconds_and_modules_that_call_themselves():
    calls = (
        TraceBuilder()
        .python("nn.Module: A_0", 0, 50)
        .python("nn.Module: B_0", 0, 50)
        .python("nn.Module: A_0", 0, 20)
        .python("nn.Module: B_0", 0, 10)
        .kernel("k", 60, 5, launch=1)
    )
    assert module_paths.build_module_paths(calls.load(stacks=True).rank().frames).to_list() == ["A.B.A", "A.B.A.B"] * 2


def test_time_by_module_puts_layers_that_are_alike_together():
    kernels = pl.DataFrame(
        {
            "module": ["N.L_0.A", "N.L_1.A", "N.L_2.A", "N.L_3.B", "N.L_0", "N.P_0", "N.P_1", None],
            "phase": ["forward", "backward", "forward", "forward", "forward", "forward", "forward", "optimizer"],
            "time_us": [4.0, 6.0, 2.0, 1.0, 3.0, 2.0, 2.0, 5.0],
        }
    )
    rows = build_module_times(kernels, 2)
    assert [(row.path, row.depth, row.modules, row.time_us, row.backward_us, row.own_us) for row in rows] == [
        ("N", 0, 1, 10, 3, 0),
        ("N.L_{0-2}", 1, 3, 7.5, 3, 1.5),
        ("N.L_{0-2}.A", 2, 3, 6, 3, 6),
        ("N.P_0", 1, 1, 1, 0, 1),
        ("N.P_1", 1, 1, 1, 0, 1),
        ("N.L_3", 1, 1, 0.5, 0, 0),
        ("N.L_3.B", 2, 1, 0.5, 0, 0.5),
        (None, 0, 1, 2.5, 0, 2.5),
    ]  # fmt: skip
    assert sum(row.share for row in rows if row.depth == 0) == pytest.approx(100)
    assert build_module_times(kernels.with_columns(module=pl.lit(None, pl.String)), 2) == ()


def test_what_if_selects_by_module(tmp_path):
    trace = two_layers().load(stacks=True)
    report = tracekit.report(trace, what_if=[r"remove(module=Net\.Layer_0.*)"])
    assert report.what_if
    with pytest.raises(TracekitError, match="no kernels with module"):
        tracekit.report(two_layers().load(), what_if=[r"remove(module=Net\.Layer_0.*)"])


def test_what_pytorch_records_today(tmp_path):
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

        def forward(self, x):
            return self.down(self.up(x).relu())

    model = torch.nn.Sequential(Block(), Block())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as profile:
        model(torch.ones(2, 4)).sum().backward()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    data = io.BytesIO((tmp_path / "trace.json").read_bytes())
    frames = decode(data, "trace.json", needs_gpu=False, stacks=True).frames
    called = frames.filter(frames["name"].str.contains(module_paths.MODULE_CALL))
    assert module_paths.build_module_paths(called).to_list() == [
        "Sequential",
        *(f"Sequential.Block_{i}{part}" for i in (0, 1) for part in ("", ".Linear_0", ".Linear_1")),
    ]
    assert frames["name"].str.contains(r"test_modules\.py\(\d+\): forward$").sum() == 2
