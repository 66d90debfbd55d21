"""Measure embedding look-ups by the distribution of their indices."""

from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from tests.validation.on_gpu.profiled import measure_kernels_us
from tests.validation.on_gpu.session import Session

ROWS = (100_000, 10_000_000)
WIDTHS = (64, 128)
BAGS = ((8192, 1), (8192, 20), (65536, 4))
"""Bags, and indices in each."""
ALPHAS = (0.0, 1.05, 1.2)
"""Exponents of Zipf's law; 0 draws evenly."""


def measure_lookups(session: Session) -> None:
    """Measure the kernels of `EmbeddingBag` forward and backward."""
    cases = {
        f"{rows}x{width} bags {bags} pooling {pooling} alpha {alpha}": partial(
            measure_case, session.device, rows, width, bags, pooling, alpha
        )
        for rows, width, (bags, pooling), alpha in product(ROWS, WIDTHS, BAGS, ALPHAS)
    }
    session.write("lookups.json", list(session.run_each(cases).values()))


def measure_case(device: str, rows: int, width: int, bags: int, pooling: int, alpha: float) -> dict[str, Any]:
    """Measure one look-up, and count the rows that it reads."""
    torch.manual_seed(0)
    indices = draw_indices(rows, bags * pooling, alpha, device).view(bags, pooling)
    table = nn.EmbeddingBag(rows, width, mode="sum", device=device)
    gradient = torch.randn(bags, width, device=device)

    def forward() -> Tensor:
        with torch.no_grad():
            result: Tensor = table(indices)
        return result

    def train() -> None:
        table.weight.grad = None
        table(indices).backward(gradient)

    case = {"rows": rows, "width": width, "bags": bags, "pooling": pooling, "alpha": alpha}
    unique = int(torch.unique(indices).numel())
    return case | {"unique": unique, "forward_us": measure_kernels_us(forward), "train_us": measure_kernels_us(train)}


def draw_indices(rows: int, count: int, alpha: float, device: str) -> Tensor:
    """Draw indices whose n-th most frequent comes with a probability as 1 / n ** alpha; where it lies is random."""
    if alpha == 0:
        return torch.randint(rows, (count,), device=device)
    weights = torch.arange(1, rows + 1, device=device, dtype=torch.float64) ** -alpha
    cumulated = weights.cumsum(0)
    ranks = torch.searchsorted(cumulated, torch.rand(count, device=device, dtype=torch.float64) * cumulated[-1])
    return torch.randperm(rows, device=device)[ranks.clamp(max=rows - 1)]
