"""Values that a model reads back: those of constants are known, those of data refused."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from tests.codes import has_code  # noqa: E402
from tracekit.capturing.program import capture  # noqa: E402
from tracekit.errors import CaptureError  # noqa: E402


def capture_ops(model: Callable[..., Any], *inputs: Any) -> list[tuple[str, list[Any]]]:
    """Capture a function and return its ops and their sizes."""
    return [(call.op.removeprefix("aten::"), call.dims) for call in capture(model, *inputs).calls]


def read_sizes(words: Tensor) -> Tensor:
    lengths = (words != 0).sum(-1).tolist()
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[:, lengths[0]] = False
    rows = words.float().new_empty(8, 16)[mask.view(-1)]
    return rows + (1 if mask.all() else 0)


def test_sizes_that_constants_decide_are_followed() -> None:
    """The first row has two words, and a mask without column 2 chooses six of eight rows."""
    ops = capture_ops(read_sizes, torch.tensor([[5, 6, 0, 0], [7, 0, 0, 0]]))
    assert ("add", [[6, 16], [], []]) in ops


def test_a_healthy_step_has_no_infinities() -> None:
    def clamp(x: Tensor) -> Tensor:
        return x.clamp(-1, 1) if torch.isinf(x).any() or torch.isnan(x).any() else x.exp()

    ops = [name for name, _ in capture_ops(clamp, torch.empty(4, 4, device="meta"))]
    assert "exp" in ops
    assert "clamp" not in ops


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x * x.max().item(),
        lambda x: x[x > 0],
        lambda x: x.cpu(),
        # What was known is spoiled by data.
        lambda x: x * torch.zeros(4, dtype=torch.int64).copy_(x[0]).sum().item(),
    ],
)
def test_values_that_data_decide_are_refused(read: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(CaptureError, check=has_code("values-unknown")):
        capture(read, torch.empty(4, 4, device="meta"))


def test_constants_launch_no_kernels() -> None:
    def scale(x: Tensor) -> Tensor:
        return x * torch.tensor([2.0, 3.0])

    assert [name for name, _ in capture_ops(scale, torch.empty(4, 2, device="meta"))] == ["mul"]


def test_routers_choose_experts_evenly() -> None:
    """Eight tokens choose one of four experts: each gets two."""

    def route(x: Tensor) -> Tensor:
        chosen = x.argmax(-1)
        hit = torch.nn.functional.one_hot(chosen, 4).sum(0).nonzero()
        return torch.cat([x[chosen == expert] * float(f"{expert[0]}") for expert in hit])

    ops = capture_ops(route, torch.empty(8, 4, device="meta"))
    assert [dims[0] for name, dims in ops if name == "mul"] == [[2, 4]] * 4
