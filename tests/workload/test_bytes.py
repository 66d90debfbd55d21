"""Bytes against what torch itself takes and gives, op by op, traced on the CPU."""

import json

import pytest

from tracekit.workload.op_work import classify_activity
from tracekit.workload.ops import compute_work
from tracekit.workload.signature import Signature

torch = pytest.importorskip("torch")
functional = pytest.importorskip("torch.nn.functional")
TorchDispatchMode = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode
tree_leaves = pytest.importorskip("torch.utils._pytree").tree_leaves


class Moved(TorchDispatchMode):
    """Bytes of all tensors that an op takes and gives, expanded axes once, of its first call."""

    def __init__(self):
        super().__init__()
        self.bytes = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        self.bytes.setdefault(func._schema.name, sum(map(size, tensors)))
        return result


def size(tensor):
    strided = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * torch.Size(length for length, stride in strided if stride).numel()


X = torch.randn(32, 64, 128)
HALF, MASK, WHOLE = X.bfloat16(), X > 0, torch.arange(128)
PAIRS = torch.randn(32, 64, 2)
"""Of which a sum per row is as large as half of them."""
IMAGE = torch.randn(4, 8, 16, 16)
NORM = torch.ones(128)
POINTWISE, REDUCE = "vectorized_elementwise_kernel", "reduce_kernel"

CALLS = {
    "aten::add": (POINTWISE, lambda: X + NORM),
    "aten::mul": (POINTWISE, lambda: HALF * WHOLE),
    "aten::where": (POINTWISE, lambda: torch.where(MASK, X, X)),
    "aten::masked_fill": (POINTWISE, lambda: X.masked_fill(MASK, 0.0)),
    "aten::eq": (POINTWISE, lambda: X == 0),
    "aten::gelu": (POINTWISE, lambda: functional.gelu(HALF)),
    "aten::gelu_backward": (POINTWISE, lambda: torch.ops.aten.gelu_backward(X, X)),
    "aten::threshold_backward": (POINTWISE, lambda: torch.ops.aten.threshold_backward(X, X, 0)),
    "aten::addcmul": (POINTWISE, lambda: torch.addcmul(X, X, X)),
    "aten::glu": (POINTWISE, lambda: functional.glu(X)),
    "aten::native_dropout": (POINTWISE, lambda: torch.native_dropout(X, 0.5, True)),
    "aten::clone": (POINTWISE, lambda: X.transpose(0, 1).contiguous()),
    "aten::cat": ("CatArrayBatchedCopy<float>", lambda: torch.cat([X, X])),
    "aten::_softmax": ("softmax_warp_forward", lambda: X.softmax(-1)),
    "aten::_softmax_backward_data": (
        "softmax_warp_backward", lambda: torch.ops.aten._softmax_backward_data(X, X, -1, torch.float32),
    ),
    "aten::native_layer_norm": ("layer_norm_kernel", lambda: functional.layer_norm(X, (128,), NORM, NORM)),
    "aten::sum": (REDUCE, lambda: PAIRS.bfloat16().sum(-1)),
    "aten::mean": (REDUCE, lambda: PAIRS.mean()),
    "aten::amax": (REDUCE, lambda: PAIRS.amax((0, 1), keepdim=True)),
    "aten::prod": (REDUCE, lambda: PAIRS.prod(2)),
    "aten::max": (REDUCE, lambda: PAIRS.max(-1)),
    "aten::min": (REDUCE, lambda: PAIRS.bfloat16().min()),
    "aten::argmax": (REDUCE, lambda: PAIRS.argmax(-1)),
    "aten::any": (REDUCE, lambda: (PAIRS > 0).any(-1)),
    "aten::var": (REDUCE, lambda: PAIRS.var(-1)),
    "aten::linalg_vector_norm": (REDUCE, lambda: torch.linalg.vector_norm(PAIRS, 2, -1)),
    "aten::addmm": ("ampere_sgemm_64x32", lambda: torch.addmm(X[0], X[0, :, :32], X[0, :32])),
    "aten::baddbmm": ("ampere_sgemm_64x32", lambda: torch.baddbmm(HALF, HALF[:, :, :32], HALF[:, :32])),
    "aten::cumsum": ("tensor_kernel_scan_innermost_dim", lambda: X.cumsum(-1)),
    "aten::sort": ("radixSortKVInPlace", lambda: X.sort(-1)),
    "aten::topk": ("gatherTopK", lambda: X.topk(1)),
    "aten::embedding": ("vectorized_gather_kernel", lambda: functional.embedding(WHOLE, torch.randn(128, 64))),
    "aten::upsample_linear1d": (
        "upsample_linear1d_out_frame", lambda: torch.ops.aten.upsample_linear1d(X, [256], False),
    ),
    "aten::upsample_bilinear2d": (
        "upsample_bilinear2d_out_frame", lambda: functional.interpolate(IMAGE, scale_factor=1.5, mode="bilinear"),
    ),
    "aten::upsample_nearest2d": ("upsample_nearest2d_out_frame", lambda: functional.interpolate(IMAGE, scale_factor=2)),
    "aten::_upsample_nearest_exact2d": (
        "upsample_nearest2d_out_frame", lambda: torch.ops.aten._upsample_nearest_exact2d(IMAGE, [32, 32]),
    ),
    "aten::reflection_pad1d": ("reflection_pad1d_out_kernel", lambda: functional.pad(X, (9, 1), mode="reflect")),
    "aten::replication_pad2d": (
        "replication_pad_forward_kernel2d", lambda: functional.pad(IMAGE, (1, 2, 3, 4), mode="replicate"),
    ),
    "aten::logcumsumexp": ("tensor_kernel_scan_innermost_dim", lambda: X.logcumsumexp(-1)),
    "aten::max_pool2d_with_indices": ("max_pool_forward_nchw", lambda: functional.max_pool2d(IMAGE, 2, ceil_mode=True)),
}  # fmt: skip
ROUNDING = 0.03
"""Of parameters and rows of norms, which are left out."""


@pytest.mark.parametrize("op", CALLS)
def test_bytes(op, tmp_path):
    kernel, call = CALLS[op]
    with Moved() as moved:
        call()
    with torch.profiler.profile(record_shapes=True) as profile:
        call()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    args = next(event["args"] for event in events if event.get("cat") == "cpu_op" and event["name"] == op)
    told = [json.dumps(args.get(name, [])) for name in ("Input Dims", "Input type", "Concrete Inputs", "Input Strides")]
    columns = compute_work(Signature.parse(op, *told), classify_activity("kernel", kernel, op))
    assert columns is not None
    assert columns["bytes"] == pytest.approx(moved.bytes[op], rel=ROUNDING)
