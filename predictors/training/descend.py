"""Trains small neural networks by gradient descent, the same ones each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from predictors.arrays import Floats, Singles
from predictors.network import Network

OUTPUTS = (64, 64, 64, 1)
"""Of each layer."""
BATCH = 512
RATE, WARM_UP, DECAY = 4e-3, 0.1, 1e-3
"""The learning rate rises for the first steps, this share of all, and then falls along a cosine; weights decay."""


def descend(
    features: Singles, target: Floats, weight: Floats, *, perceptrons: int, epochs: int, huber: float, seed: int = 0
) -> Network:
    """Fits perceptrons that each follow the target, with Huber's loss.

    Args:
        features: float32 (features, rows).
        target: (rows,), logarithms of measured over modelled time.
        weight: (rows,), with mean 1.
        perceptrons: how many; they start from other weights and see the rows in other orders.
        epochs: how often each goes through all rows.
        huber: errors beyond this count linearly.
        seed: of the first weights and of the orders.
    """
    centre, spread = features.mean(axis=1, keepdims=True), features.std(axis=1, keepdims=True)
    scale = np.where(spread > 0, 1 / np.maximum(spread, 1e-6), 0).astype(np.float32)
    x, y, w = (torch.from_numpy(a.astype(np.float32)) for a in (((features - centre) * scale).T, target, weight))
    draw = torch.Generator().manual_seed(seed)
    weights, biases = _start(draw, perceptrons, len(features))
    batches = max(y.numel() // BATCH, 1)
    descent = torch.optim.AdamW([*weights, *biases], lr=RATE, weight_decay=DECAY, fused=True)
    pace = torch.optim.lr_scheduler.OneCycleLR(
        descent, RATE, total_steps=epochs * batches, pct_start=WARM_UP, cycle_momentum=False
    )
    with _one_thread():
        for _ in range(epochs):
            orders = torch.stack([torch.randperm(y.numel(), generator=draw) for _ in range(perceptrons)])
            for rows in orders[:, : batches * BATCH].chunk(batches, dim=1):
                errors = F.huber_loss(_outputs(weights, biases, x[rows]), y[rows], reduction="none", delta=huber)
                descent.zero_grad()
                torch.autograd.backward((errors * w[rows]).mean(dim=1).sum())
                descent.step()
                pace.step()
    matrices, offsets = ([value.detach().numpy() for value in values] for values in (weights, biases))
    offsets[0] = offsets[0] - matrices[0] @ (centre * scale)
    matrices[0] = matrices[0] * scale.T
    return Network(features.min(axis=1), features.max(axis=1), tuple(matrices), tuple(offsets))


@contextmanager
def _one_thread() -> Iterator[None]:
    """In threads of their own such small products wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _start(draw: torch.Generator, perceptrons: int, inputs: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Weights (perceptrons, outputs, inputs) and biases (perceptrons, outputs, 1) of each layer."""
    weights: list[torch.Tensor] = []
    biases: list[torch.Tensor] = []
    for outputs in OUTPUTS:
        for values, columns in ((weights, inputs), (biases, 1)):
            drawn = torch.rand(perceptrons, outputs, columns, generator=draw)
            values.append(((2 * drawn - 1) / inputs**0.5).requires_grad_())
        inputs = outputs
    return weights, biases


def _outputs(weights: list[torch.Tensor], biases: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """What each perceptron makes of its rows: float32 (perceptrons, rows) of (perceptrons, rows, features)."""
    value = x.transpose(1, 2)
    for matrix, offset in zip(weights[:-1], biases[:-1], strict=True):
        value = torch.baddbmm(offset, matrix, value).relu_()
    return torch.baddbmm(biases[-1], weights[-1], value)[:, 0]
