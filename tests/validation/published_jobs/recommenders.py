"""NVIDIA's DLRM for inference, with one table for all features, as its sources have it.

Its interaction is a kernel of its own, which reads all rows of a sample once and writes their products beside the dense
results. What stands for it here reads and writes as much, in two kernels.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

FEATURES, DENSE, WIDTH = 26, 13, 128
TABLE_ROWS = 30_000_000
"""Of all features together: 15 GB in fp32, NVIDIA's small model."""
BOTTOM, TOP = (512, 256, WIDTH), (1024, 1024, 512, 256, 1)
INTERACTIONS = 480
"""The bottom MLP's 128 results, 351 products and one column of zeros."""


class JointDlrm(nn.Module):
    """A DLRM with one table for all features."""

    starts: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TABLE_ROWS, WIDTH)
        self.bottom, self.top = _make_mlp((DENSE, *BOTTOM)), _make_mlp((INTERACTIONS, *TOP))
        self.register_buffer("starts", torch.zeros(FEATURES, dtype=torch.long))

    def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
        """Return a number for each sample."""
        lowest = self.bottom(dense)
        rows = torch.cat((lowest[:, None], self.table(indices + self.starts)), dim=1)
        read = rows.amax(dim=2)
        repeated = (lowest, lowest, lowest, read, read, read, read)
        kept = torch.cat(repeated, dim=1)[:, :INTERACTIONS]
        result: Tensor = self.top(kept)
        return result


def _make_mlp(widths: tuple[int, ...]) -> nn.Sequential:
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[: None if widths[-1] > 1 else -1])


def build_inference(batch: int, dtype: str) -> tuple[nn.Module, Tensor, Tensor]:
    """Build the model and its inputs on the meta device.

    Args:
        batch: Samples.
        dtype: 'fp16' or another, which counts as fp32.
    """
    with torch.device("meta"):
        kind = torch.float16 if dtype == "fp16" else torch.float32
        model = JointDlrm().to(kind)
        return model, torch.empty(batch, DENSE, dtype=kind), torch.empty(batch, FEATURES, dtype=torch.long)
