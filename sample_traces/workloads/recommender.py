"""A recommender after DLRM (Naumov et al., 2019): embedding bags, dot interactions, two MLPs."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sample_traces.workloads.step import Step, train

TABLES = 26
DENSE = 13


class Recommender(nn.Module):
    """Dense features and bags of categories to a click's logit."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(TABLES))
        self.bottom = nn.Sequential(nn.Linear(DENSE, 4 * width), nn.ReLU(), nn.Linear(4 * width, width), nn.ReLU())
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 8 * width), nn.ReLU(), nn.Linear(8 * width, 1))

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        """``dense``: samples x DENSE; ``categories``: tables x samples x bag."""
        low = self.bottom(dense)
        bags = [table(category) for table, category in zip(self.tables, categories, strict=True)]
        features = torch.stack([low, *bags], dim=1)
        rows, columns = torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1, device=dense.device)
        products = (features @ features.transpose(1, 2))[:, rows, columns]
        return self.top(torch.cat([low, products], dim=1)).squeeze(1)


def dlrm_train(device: str, small: bool) -> Step:
    """Train with 26 tables of 100,000 rows, 8,192 samples, fp32."""
    torch.manual_seed(0)
    rows, width, samples = (64, 8, 4) if small else (100_000, 64, 8192)
    with torch.device(device):
        model = Recommender(rows, width)
    dense = torch.randn(samples, DENSE, device=device)
    categories = torch.randint(rows, (TABLES, samples, 4), device=device)
    clicks = torch.rand(samples, device=device).round()

    def loss() -> Tensor:
        return functional.binary_cross_entropy_with_logits(model(dense, categories), clicks)

    return train(model.parameters(), loss, torch.enable_grad())


WORKLOADS = {"dlrm_train": dlrm_train}
