"""Kernels find the modules and lines that their ops note: TorchScript's, and those that PyTorch of 2021 wrote."""

import io
import os
from pathlib import Path

import polars as pl
import pytest

import tracekit
from tests.workload.test_modules import told
from tracekit.ingest import load_bytes
from tracekit.ingest.decode import decode
from tracekit.messages.traces import STACKS_NOT_RECORDED
from tracekit.testing import TraceBuilder
from tracekit.workload import module_paths
from tracekit.workload.kernel_table import build_kernel_table

AUTOGRAD_THREAD = 101
PACKAGES = "/opt/conda/lib/python3.7/site-packages"


def noted(hierarchy: str = "", stack: str = "", number: int | None = None) -> dict[str, object]:
    numbered = {} if number is None else {"Sequence number": number}
    return {"Module Hierarchy": hierarchy, "Call stack": stack} | numbered


def scripted_net() -> TraceBuilder:
    """A script module that Python calls; its optimised part is an op of its own, which names no outermost module."""
    within = "TOP()::<forward op>.0(Block)::forward.fc1(Linear)::forward."
    return (
        TraceBuilder()
        .op("forward", 10, 80, **noted("TOP(Net)::forward.", "net.py(7): forward;"))
        .op("<forward op>", 20, 40, **noted("TOP()::<forward op>."))
        .op("aten::addmm", 21, 8, **noted(within, f"{PACKAGES}/torch/nn/linear.py(1): forward;net.py(4): f;", 3))
        .op("aten::relu", 31, 8, **noted("TOP()::<forward op>.0(Block)::forward.act(ReLU)::forward.::relu.", "", 4))
        .op("aten::mul", 70, 8, **noted("TOP(Net)::forward.SELF(Net)::scaled.CALL_FUNCTION::by()::by.", "", 5))
        .op("aten::sum", 100, 8)
        .kernel("addmm", 200, 4, launch=22)
        .kernel("relu", 210, 4, launch=32)
        .kernel("mul", 220, 4, launch=72)
        .kernel("sum", 230, 4, launch=102)
    )


def test_modules_of_scripted_code_by_class_and_name():
    assert told(scripted_net()) == {
        "addmm": "Net.Block_0.Linear_fc1",
        "relu": "Net.Block_0.ReLU_act",
        "mul": "Net",
        "sum": None,
    }


def test_python_calls_the_outermost_module_by_the_name_of_its_wrapper():
    builder = (
        scripted_net()
        .python("nn.Module: Trainer_0", 0, 190)
        .python("nn.Module: RecursiveScriptModule_0", 5, 90)
        .python("nn.Module: RecursiveScriptModule_1", 100, 10)
    )
    assert told(builder) == {
        "addmm": "Trainer.Net_0.Block_0.Linear_fc1",
        "relu": "Trainer.Net_0.Block_0.ReLU_act",
        "mul": "Trainer.Net_0",
        "sum": "Trainer.RecursiveScriptModule_1",
    }


def test_lines_of_users_among_those_that_an_op_notes():
    builder = scripted_net().python("train.py(2): step", 0, 190)
    assert told(builder, "python_line") == {
        "addmm": "net.py(4): f",
        "relu": "net.py(7): forward",
        "mul": "net.py(7): forward",
        "sum": "train.py(2): step",
    }


def test_backward_kernels_belong_to_the_module_and_line_of_their_forward_op():
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    builder = (
        scripted_net()
        .op(node, 300, 50, thread=AUTOGRAD_THREAD, **{"Sequence number": 3})
        .kernel("of a node", 400, 5, launch=310, thread=AUTOGRAD_THREAD)
        .op("<backward op>", 500, 50, thread=AUTOGRAD_THREAD, **noted("TOP()::<backward op>.", "<string>(7): f;"))
        .kernel("of TorchScript's own gradient", 600, 5, launch=510, thread=AUTOGRAD_THREAD)
    )  # fmt: skip
    modules, lines = told(builder), told(builder, "python_line")
    assert (modules["of a node"], lines["of a node"]) == ("Net.Block_0.Linear_fc1", "net.py(4): f")
    own = "of TorchScript's own gradient"
    assert (modules[own], lines[own]) == (None, None)


def test_torchscripts_own_gradient_belongs_to_the_module_whose_inputs_it_detached():
    node = "autograd::engine::evaluate_function: torch::jit::(anonymous namespace)::DifferentiableGraphBackward"
    builder = (
        TraceBuilder()
        .op("forward", 10, 80, **noted("TOP(Net)::forward."))
        .op("aten::detach", 12, 4, **noted("TOP(Net)::forward.", "", 7))
        .op("aten::linear", 20, 40, **noted("TOP()::<forward op>.fc1(Linear)::forward.", "", 7))
        .op("aten::sum", 100, 20, **noted("", "", 7))
        .op("autograd::engine::evaluate_function: SumBackward0", 300, 50, **noted("", "", 7))
        .op(node, 400, 90, thread=AUTOGRAD_THREAD, **noted("", "", 6))
        .op("<backward op>", 410, 50, thread=AUTOGRAD_THREAD, **noted("TOP()::<backward op>."))
        .kernel("of the graph", 600, 5, launch=420, thread=AUTOGRAD_THREAD)
        .kernel("of the sum", 610, 5, launch=310)
    )
    assert told(builder) == {"of the graph": "Net", "of the sum": None}


def test_lines_that_pytorch_noted_in_2021():
    inner = f"{PACKAGES}/torch/nn/functional.py(9): conv2d"
    stack = f"{inner};{PACKAGES}/torchvision/resnet.py(5): forward;train.py(3): <module>"
    builder = (
        TraceBuilder()
        .op("aten::conv2d", 10, 20, **{"Call stack": stack, "Sequence number": 8})
        .kernel("forward", 100, 5, launch=15)
        .op("CudnnConvolutionBackward", 200, 20, thread=AUTOGRAD_THREAD, **{"Sequence number": 8})
        .kernel("backward", 300, 5, launch=205, thread=AUTOGRAD_THREAD)
    )
    assert told(builder, "python_line") == dict.fromkeys(("forward", "backward"), "torchvision/resnet.py(5): forward")
    assert set(told(builder).values()) == {None}


@pytest.mark.parametrize("stacks", [True, False])
def test_both_decoders_read_what_ops_note(stacks: bool):
    awkward = noted("TOP(Nét)::forward.", 'C:\\net "1".py(4): f;')
    data = scripted_net().op("aten::neg", 150, 5, **awkward).op("aten::neg", 160, 5, **noted(None)).to_json()
    quick = decode(io.BytesIO(data), "a", small_bytes=0, stacks=stacks)
    careful = load_bytes(data, "a", stacks=stacks).rank()
    assert quick.ops.equals(careful.ops)
    assert quick.has_stacks == stacks
    noting = quick.ops.filter(pl.col("module_hierarchy").str.contains("Nét"))
    assert noting["call_stack"].to_list() == (['C:\\net "1".py(4): f;'] if stacks else [])


def test_ops_that_note_nothing_are_no_stacks(tmp_path):
    path = TraceBuilder().op("aten::mm", 0, 9, **noted()).kernel("k", 20, 5, launch=1).save(tmp_path / "trace.json")
    assert STACKS_NOT_RECORDED() in tracekit.load(path, stacks=True).rank().warnings
    path = scripted_net().save(tmp_path / "scripted.json")
    assert STACKS_NOT_RECORDED() not in tracekit.load(path, stacks=True).rank().warnings


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_what_torchscript_records_today(tmp_path):
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

        def forward(self, x):
            return self.down(self.up(x).relu())

    model = torch.jit.script(torch.nn.Sequential(Block(), Block()))
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, with_stack=True, with_modules=True) as profile:
        model(torch.ones(2, 4))
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    data = io.BytesIO((tmp_path / "trace.json").read_bytes())
    ops = decode(data, "trace.json", needs_gpu=False, stacks=True).ops
    products = module_paths.find_torchscript_modules(ops.filter(pl.col("name") == "aten::linear"))
    assert products.select("outermost", "inside").rows() == [
        ("Sequential", f"Block_{i}.Linear_{part}") for i in (0, 1) for part in ("up", "down")
    ]
    stacks = ops.filter(pl.col("name") == "aten::linear")["call_stack"]
    assert stacks.str.contains(r"test_scripted\.py\(\d+\): forward;").all()


def test_a_resnet_of_2021():
    folder = os.environ.get("TRACEKIT_REAL_TRACES")
    if not folder:
        pytest.skip("set TRACEKIT_REAL_TRACES to a folder of traces")
    trace = tracekit.load(Path(folder) / "v100_resnet50_train_6steps_2021.json.gz", stacks=True)
    kernels = build_kernel_table(trace.rank())
    written = kernels.filter(pl.col("python_line").is_not_null())
    assert written["dur_ns"].sum() > 0.95 * kernels["dur_ns"].sum()
    assert written["python_line"].str.contains(r"resnet\.py\(\d+\): |resnet50_profiler_api\.py").all()
