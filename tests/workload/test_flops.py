"""FLOPs against torch's own counter, op by op, on models traced on the CPU.

All differences that are allowed, each torch's:

- Of groups, it takes the weight's gradient for one over all pairs of channels (``GROUPED``); three times the forward
  pass is right.
- Of causal attention, it counts the whole square of queries and keys; tracekit counts the triangle.
- ``bilinear`` and ``cdist`` hide their products from it.
"""

import json

import polars as pl
import pytest

from predictors.columns import prepare_kernels
from tracekit.workload.ops import OPS, compute_work
from tracekit.workload.signature import Signature

torch = pytest.importorskip("torch")
oracle = pytest.importorskip("torch.utils.flop_counter")

# Ops inside others here; one level is counted.
LEAVES = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution", "aten::convolution_backward")


def flops_of(columns):
    return 2 * columns["batch"] * columns["m"] * columns["n"] * columns["k"]


def counted(args, name):
    concrete = args.get("Concrete Inputs", [])
    signature = Signature.parse(
        name, json.dumps(args["Input Dims"]), json.dumps(args["Input type"]), json.dumps(concrete)
    )
    columns = compute_work(signature, "conv" if "conv" in name else "gemm")
    assert columns is not None, (name, args)
    if name != "aten::convolution_backward":
        return flops_of(columns)
    wants_input, wants_weight, _ = signature.get_value(10)
    return (wants_input + wants_weight) * flops_of(columns)


def traced_flops(run, path):
    with torch.profiler.profile(record_shapes=True) as profile:
        run()
    profile.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    return sum(counted(e["args"], e["name"]) for e in events if e.get("cat") == "cpu_op" and e["name"] in LEAVES)


def attention(q, k, v, **options):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)


class Block(torch.nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.q = torch.nn.Linear(width, width)
        self.kv = torch.nn.Linear(width, 2 * kv_heads * self.head, bias=False)
        self.out = torch.nn.Linear(width, width)
        wide = torch.nn.Linear(width, 4 * width)
        self.mlp = torch.nn.Sequential(wide, torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x):
        batch, tokens, width = x.shape
        q = self.q(x).view(batch, tokens, self.heads, self.head).transpose(1, 2)
        kv = self.kv(x).view(batch, tokens, 2 * self.kv_heads, self.head).transpose(1, 2)
        k, v = (part.repeat_interleave(self.heads // self.kv_heads, 1) for part in kv.chunk(2, 1))
        x = x + self.out(attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(x)


def resnet():
    nn = torch.nn
    layers = (
        *(nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
        *(nn.Conv2d(8, 16, 3, padding=2, dilation=2), nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(8, 4, 1)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)),
    )
    return nn.Sequential(*layers), torch.randn(2, 3, 32, 32)


def vit():
    patches = torch.nn.Conv2d(3, 32, 8, 8)
    flatten = torch.nn.Flatten(2)
    return torch.nn.Sequential(patches, flatten, Transposed(), Block(32, 4, 4)), torch.randn(2, 3, 32, 32)


class Transposed(torch.nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


MODELS = {
    "resnet": resnet,
    "bert": lambda: (torch.nn.Sequential(Block(32, 4, 4), Block(32, 4, 4)), torch.randn(2, 12, 32)),
    "llama": lambda: (torch.nn.Sequential(Block(32, 8, 2), torch.nn.Linear(32, 50, bias=False)), torch.randn(2, 9, 32)),
    "vit": vit,
}


@pytest.mark.parametrize("name", MODELS)
def test_models_forward_and_backward(name, tmp_path):
    torch.manual_seed(0)
    model, x = MODELS[name]()

    def run():
        model(x).square().mean().backward()

    with oracle.FlopCounterMode(display=False) as counter:
        run()
    assert traced_flops(run, tmp_path / "trace.json") == counter.get_total_flops()


CONVOLUTIONS = {
    "depthwise": lambda: (torch.nn.Conv2d(16, 16, 3, padding=1, groups=16), (2, 16, 9, 9)),
    "grouped": lambda: (torch.nn.Conv2d(16, 32, 3, groups=4), (2, 16, 9, 9)),
    "transposed, grouped": lambda: (torch.nn.ConvTranspose2d(16, 8, 2, 2, groups=2), (2, 16, 9, 9)),
    "1d": lambda: (torch.nn.Conv1d(4, 8, 3, stride=2), (2, 4, 9)),
    "3d": lambda: (torch.nn.Conv3d(4, 8, 3), (2, 4, 9, 9, 9)),
}

GROUPED = ("depthwise", "grouped", "transposed, grouped")


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, tmp_path):
    layer, shape = CONVOLUTIONS[name]()
    x = torch.randn(shape, requires_grad=True)
    with oracle.FlopCounterMode(display=False) as counter:
        layer(x)
    forward = traced_flops(lambda: layer(x), tmp_path / "forward.json")
    assert forward == counter.get_total_flops()
    assert traced_flops(lambda: layer(x).sum().backward(), tmp_path / "both.json") == 3 * forward
    with oracle.FlopCounterMode(display=False) as counter:
        layer(x).sum().backward()
    assert (counter.get_total_flops() == 3 * forward) == (name not in GROUPED)


@pytest.mark.parametrize("op", sorted(op for op in OPS if "scaled_dot_product" in op))
def test_attention(op):
    q, k = (2, 8, 24, 64), (2, 8, 40, 64)
    backward = op.endswith("backward")
    dims = [q, q, k, k] if backward else [q, k, k]
    columns = compute_work(Signature(op, [list(shape) for shape in dims], ["float"] * len(dims), []), "attention")
    products = columns["batch"] * columns["heads"] * columns["q_len"] * columns["kv_len"] * columns["head_dim"]
    expected = oracle.sdpa_backward_flop_count(q, q, k, k) if backward else oracle.sdpa_flop_count(q, k, k)
    assert (10 if backward else 4) * products == expected


PRODUCTS = {
    "broadcast": lambda a: torch.matmul(a, torch.ones(32, 16)),
    "einsum": lambda a: torch.einsum("bik,bjk->bij", a, a),
    "baddbmm": lambda a: torch.baddbmm(torch.ones(4, 24, 24), a, a.transpose(1, 2)),
    "addmm": lambda a: torch.addmm(torch.ones(24, 16), a[0], torch.ones(32, 16)),
    "linear": lambda a: torch.nn.functional.linear(a, torch.ones(16, 32), torch.ones(16)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, tmp_path):
    a = torch.ones(4, 24, 32)
    with oracle.FlopCounterMode(display=False) as counter:
        PRODUCTS[name](a)
    assert traced_flops(lambda: PRODUCTS[name](a), tmp_path / "trace.json") == counter.get_total_flops() > 0


def test_causal_attention_is_a_triangle():
    dims = [[1, 2, 64, 32]] * 3
    op = "aten::_scaled_dot_product_flash_attention"
    columns = compute_work(Signature(op, [*dims, [], []], ["float"] * 3, ["", "", "", "0.0", "True"]), "attention")
    table = prepare_kernels(pl.DataFrame([{"family": "attention", "dtype": "fp16", **columns}]))
    assert table["work_flops"].to_list() == [4 * 2 * 32 * (64 * 65 // 2)]
    assert oracle.sdpa_flop_count(*dims) == 4 * 2 * 32 * 64 * 64
