"""Train small neural networks by gradient descent, deterministically."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from predictors.arrays import Floats, Singles
from predictors.corrections import MlpEnsemble

LAYER_OUTPUTS = (64, 64, 64, 1)
"""Of each layer."""
BATCH_ROWS = 512
LEARNING_RATE, WARM_UP_FRACTION, WEIGHT_DECAY = 4e-3, 0.1, 1e-3
"""The learning rate rises for the first steps, this share of all, and then falls along a cosine; weights decay."""


def train_mlps(
    features: Singles, target: Floats, weight: Floats, *, perceptrons: int, epochs: int, huber: float, seed: int = 0
) -> MlpEnsemble:
    """Fits perceptrons that each follow the target, with Huber's loss.

    Args:
        features: float32 (features, rows).
        target: log(measured / modelled), (rows,).
        weight: Weights with mean 1, (rows,).
        perceptrons: Number of perceptrons. They differ in initial weights and in the order of the rows.
        epochs: Passes of each perceptron over all rows.
        huber: Errors beyond this count linearly.
        seed: Seed of the initial weights and the orders.
    """
    centre, spread = features.mean(axis=1, keepdims=True), features.std(axis=1, keepdims=True)
    scale = np.where(spread > 0, 1 / np.maximum(spread, 1e-6), 0).astype(np.float32)
    x, y, w = (torch.from_numpy(a.astype(np.float32)) for a in (((features - centre) * scale).T, target, weight))
    draw = torch.Generator().manual_seed(seed)
    weights, biases = _initialize_parameters(draw, perceptrons, len(features))
    batches = max(y.numel() // BATCH_ROWS, 1)
    descent = torch.optim.AdamW([*weights, *biases], lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    pace = torch.optim.lr_scheduler.OneCycleLR(
        descent, LEARNING_RATE, total_steps=epochs * batches, pct_start=WARM_UP_FRACTION, cycle_momentum=False
    )
    with _use_one_thread():
        for _ in range(epochs):
            orders = torch.stack([torch.randperm(y.numel(), generator=draw) for _ in range(perceptrons)])
            for rows in orders[:, : batches * BATCH_ROWS].chunk(batches, dim=1):
                errors = F.huber_loss(_evaluate_mlps(weights, biases, x[rows]), y[rows], reduction="none", delta=huber)
                descent.zero_grad()
                torch.autograd.backward((errors * w[rows]).mean(dim=1).sum())
                descent.step()
                pace.step()
    matrices, offsets = ([value.detach().numpy() for value in values] for values in (weights, biases))
    offsets[0] = offsets[0] - matrices[0] @ (centre * scale)
    matrices[0] = matrices[0] * scale.T
    return MlpEnsemble(features.min(axis=1), features.max(axis=1), tuple(matrices), tuple(offsets))


@contextmanager
def _use_one_thread() -> Iterator[None]:
    """In threads of their own such small products wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _initialize_parameters(
    draw: torch.Generator, perceptrons: int, inputs: int
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Weights (perceptrons, outputs, inputs) and biases (perceptrons, outputs, 1) of each layer."""
    weights: list[torch.Tensor] = []
    biases: list[torch.Tensor] = []
    for outputs in LAYER_OUTPUTS:
        for values, columns in ((weights, inputs), (biases, 1)):
            drawn = torch.rand(perceptrons, outputs, columns, generator=draw)
            values.append(((2 * drawn - 1) / inputs**0.5).requires_grad_())
        inputs = outputs
    return weights, biases


def _evaluate_mlps(weights: list[torch.Tensor], biases: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """What each perceptron makes of its rows: float32 (perceptrons, rows) of (perceptrons, rows, features)."""
    value = x.transpose(1, 2)
    for matrix, offset in zip(weights[:-1], biases[:-1], strict=True):
        value = torch.baddbmm(offset, matrix, value).relu_()
    return torch.baddbmm(biases[-1], weights[-1], value)[:, 0]
