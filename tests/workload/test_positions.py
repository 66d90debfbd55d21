"""Where ops have their arguments, against torch's own schemas."""

import pytest

from tracekit.workload.ops import conv
from tracekit.workload.ops.registry import OPS
from tracekit.workload.signature import Signature

torch = pytest.importorskip("torch")


ATTENTION = [name for name, known in OPS.items() if known.family == "attention" and name.startswith("aten::")]
MASK_NAMES = {"attn_bias", "attn_mask", "bias"}


def arguments(op: str) -> list[str]:
    """Names of an op's arguments; empty if torch doesn't know it (any more)."""
    space, name = op.split("::")
    packet = getattr(getattr(torch.ops, space), name, None)
    return [] if packet is None else [argument.name for argument in packet.default._schema.arguments]


@pytest.mark.parametrize("op", [op for op in ATTENTION if arguments(op)])
def test_attention(op: str):
    names = arguments(op)
    dims: list[list[int]] = [[]] * len(names)
    concrete = ["0" if name.startswith("max_") else "False" for name in names]
    for name, shape in {"query": [2, 7, 11, 64], "key": [2, 7, 13, 64], "value": [2, 7, 13, 64]}.items():
        dims[names.index(name)] = shape
    for name in MASK_NAMES.intersection(names):
        dims[names.index(name)] = [2, 7, 11, 13]
    for name, value in {"is_causal": "True", "custom_mask_type": "1", "window_size_left": "5"}.items():
        if name in names:
            concrete[names.index(name)] = value
    columns = OPS[op].compute(Signature(op, dims, [], concrete))
    assert columns is not None
    assert (columns["causal"], columns["direction"]) == (True, "backward" if "backward" in op else "forward")
    assert {columns["q_len"], columns["heads"]} == {7, 11}
    assert columns["window"] == (6 if "window_size_left" in names else None)
    masks = [name for name in names if name in MASK_NAMES]
    assert ("mask_bytes" in columns) == bool(masks)
    for name in masks:
        columns = OPS[op].compute(Signature(op, drop_input(dims, names.index(name)), [], concrete))
        assert columns is not None
        assert "mask_bytes" not in columns


def drop_input(dims: list[list[int]], place: int) -> list[list[int]]:
    return [[] if index == place else shape for index, shape in enumerate(dims)]


@pytest.mark.parametrize("op", [op for op in conv.FORWARD_ARGUMENTS if arguments(op)])
def test_convolutions(op: str):
    names, places = arguments(op), conv.FORWARD_ARGUMENTS[op]
    assert (names[places.stride], names[places.padding]) == ("stride", "padding")
    assert places.dilation < 0 or names[places.dilation] == "dilation"
    assert places.transposed in (None, conv.ALWAYS_TRANSPOSED) or names[places.transposed] == "transposed"
    assert op not in conv.GROUPS_POSITION or names[conv.GROUPS_POSITION[op]] == "groups"
