"""A mixture-of-experts layer: top-2 routing over eight gated experts, one matrix product an expert."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sample_traces.workloads.step import Step, train


class Experts(nn.Module):
    """Each token goes to ``top`` of ``count`` experts."""

    def __init__(self, width: int, hidden: int, count: int, top: int) -> None:
        super().__init__()
        self.top = top
        self.router = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, width, 2 * hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(count, hidden, width) / hidden**0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens``: tokens x width."""
        weight, expert = self.router(tokens).float().softmax(-1).topk(self.top, dim=-1)
        result = torch.zeros_like(tokens)
        for number in range(self.up.shape[0]):
            token, slot = torch.where(expert == number)
            gate, up = (tokens[token] @ self.up[number]).chunk(2, dim=-1)
            output = (functional.silu(gate) * up) @ self.down[number]
            result.index_add_(0, token, output * weight[token, slot, None].to(output.dtype))
        return result


def moe_train(device: str, small: bool) -> Step:
    """Train on 4,096 tokens in bf16; where each goes is read back by the CPU, as plain PyTorch does."""
    torch.manual_seed(0)
    width, hidden, tokens = (16, 32, 8) if small else (2048, 4096, 4096)
    with torch.device(device):
        model = Experts(width, hidden, count=8, top=2).to(torch.bfloat16)
    batch = torch.randn(tokens, width, device=device, dtype=torch.bfloat16)
    return train(model.parameters(), lambda: model(batch).float().square().mean(), torch.enable_grad())


WORKLOADS = {"moe_train": moe_train}
