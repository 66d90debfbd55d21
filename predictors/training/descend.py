"""Trains small neural networks by gradient descent: deterministic, and without a library."""

from __future__ import annotations

import numpy as np

from predictors.network import Floats, Network
from predictors.terms import Array

OUTPUTS = (64, 64, 64, 1)
"""Of each layer."""
BATCH = 512
RATE, WARM_UP = 4e-3, 0.1
"""The learning rate rises for the first steps, this share of all, and then falls along a cosine to nothing."""
DECAY, MEMORY = 1e-3, (0.9, 0.999)
"""Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""


def descend(
    features: Floats, target: Array, weight: Array, *, perceptrons: int, epochs: int, huber: float, seed: int = 0
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
    x, y, w = (features - centre) * scale, target.astype(np.float32), weight.astype(np.float32)
    draw = np.random.default_rng(seed)
    values = _start(draw, perceptrons, len(features))
    means, squares = ([np.zeros_like(value) for value in values] for _ in range(2))
    batches = max(y.size // BATCH, 1)
    for step in range(epochs * batches):
        if step % batches == 0:
            order = np.stack([draw.permutation(y.size) for _ in range(perceptrons)])
        rows = order[:, step % batches * BATCH :][:, :BATCH]
        slopes = _slopes(values, x[:, rows].transpose(1, 0, 2), y[rows], w[rows], huber)
        rate = RATE * _pace((step + 1) / (epochs * batches))
        for value, slope, mean, square in zip(values, slopes, means, squares, strict=True):
            mean += (1 - MEMORY[0]) * (slope - mean)
            square += (1 - MEMORY[1]) * (slope**2 - square)
            typical = np.sqrt(square / (1 - MEMORY[1] ** (step + 1))) + 1e-8
            value -= rate * (mean / (1 - MEMORY[0] ** (step + 1)) / typical + DECAY * value)
    values[1] -= values[0] @ (centre * scale)
    values[0] *= scale.T
    return Network(features.min(axis=1), features.max(axis=1), tuple(values[::2]), tuple(values[1::2]))


def _pace(done: float) -> float:
    """Share of the learning rate when a share of the steps is done."""
    if done < WARM_UP:
        return done / WARM_UP
    return 0.5 + 0.5 * float(np.cos(np.pi * (done - WARM_UP) / (1 - WARM_UP)))


def _start(draw: np.random.Generator, perceptrons: int, inputs: int) -> list[Floats]:
    """Weights (perceptrons, outputs, inputs) and biases (perceptrons, outputs, 1) of each layer in turn."""
    values = []
    for outputs in OUTPUTS:
        most = 1 / np.sqrt(inputs)
        values += [draw.uniform(-most, most, (perceptrons, outputs, n)).astype(np.float32) for n in (inputs, 1)]
        inputs = outputs
    return values


def _slopes(values: list[Floats], x: Floats, target: Floats, weight: Floats, huber: float) -> list[Floats]:
    """Derivatives of the mean loss by each of the values, by backpropagation.

    Args:
        values: from `_start`.
        x: standardised features, (perceptrons, features, rows).
        target: (perceptrons, rows).
        weight: (perceptrons, rows).
        huber: errors beyond this count linearly.
    """
    seen = [x]
    for weights, biases in zip(values[:-2:2], values[1:-2:2], strict=True):
        seen.append(np.maximum(weights @ seen[-1] + biases, 0))
    error = values[-2] @ seen[-1] + values[-1] - target[:, None]
    back = np.clip(error, -huber, huber) * weight[:, None] / np.float32(target.shape[1])
    slopes: list[Floats] = []
    for weights, before in zip(values[-2::-2], seen[::-1], strict=True):
        slopes += [back.sum(axis=2, keepdims=True), back @ before.transpose(0, 2, 1)]
        back = (weights.transpose(0, 2, 1) @ back) * (before > 0)
    return slopes[::-1]
