"""Convolutions: as the product that they imply, or by Winograd's algorithms, which multiply less."""

from __future__ import annotations

import numpy as np

from predictors.laws.products import (
    DEEP_SPLITS,
    gemm_fp32_terms,
    gemm_terms,
    on_vector_units,
    product_terms,
    sustained_tflops,
)
from predictors.machine import Machine
from predictors.terms import Columns, Constants, Terms, memory_us, rounds

EDGE = 4
"""Outputs of a tile of the transformed products, each way: F(4x4, 3x3) takes 36 multiplications for 16 (Lavin and Gray,
arXiv:1509.09308), as cuDNN's batches of 36 products show."""
IMAGES_AT_ONCE = 16
"""The transformed products of fewer images are as large, by the grids of cuDNN's kernels."""
BLOCKS = ((1, 8, 16), (4, 8, 4), (4, 4, 8), (4, 2, 16), (2, 4, 16), (2, 8, 8))
"""Images, rows and columns of outputs that a block of cuDNN's fused kernels computes, by their names (tile148t: one
image, 4 x 8 tiles of 2 x 2 outputs) and their grids."""
BLOCKS_SINCE = {"7": 1, "8": 2, "9": 2, "10": 2, "12": 2}
"""How many of these there are for a compute capability: before Volta all."""
BLOCK_FILTERS = 32
"""Output channels of such a block."""
BLOCK_MULTIPLIES = 16 * 32 * BLOCK_FILTERS
"""Of one for each input channel: F(2x2, 3x3) takes 16 for a tile, of which a block has 32."""
FUSED_WINDOW = 9


def conv_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """A convolution on the matrix units, as the product that it implies."""
    return gemm_terms(x, gpu, c, DEEP_SPLITS)


def conv_fp32_terms(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """A convolution on the vector units, by the quickest way."""
    ways = [gemm_fp32_terms(x, gpu, c), _transformed(x, gpu, c), _fused(x, gpu, c)]
    best = np.argmin([way.time_us for way in ways], axis=0)
    floor, compute, memory = ([getattr(way, part) for way in ways] for part in ("floor_us", "compute_us", "memory_us"))
    return Terms(np.choose(best, floor), np.choose(best, compute), np.choose(best, memory))


def _transformed(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """Kernels that transform the inputs and the filters, a batch of products, and one that transforms back."""
    images = IMAGES_AT_ONCE * np.ceil(x["images"] / IMAGES_AT_ONCE)
    tiles = images * np.ceil(x["height"] / EDGE) * np.ceil(x["width"] / EDGE)
    inputs, filters, of_weights = x["inputs"], x["filters"], x["of_weights"] > 0
    batch = x["batch"] * (EDGE + np.sqrt(x["window_size"]) - 1) ** 2
    moved = batch * x["size"] * (tiles * (inputs + filters) + inputs * filters)
    m, k = np.where(of_weights, inputs, tiles), np.where(of_weights, tiles, inputs)
    products = {**x, "batch": batch, "m": m, "n": filters, "k": k, "work_bytes": moved}
    batched = {**c, "compute": c["compute"] * c["batched"]}
    product = product_terms(on_vector_units(products, gpu, c), gpu, batched, DEEP_SPLITS)
    # One kernel after the other: what the transforms take comes on top of either.
    transforms = (x["work_bytes"] + moved) / (gpu.bandwidth_gbps * c["transform"]) / 1e3
    return Terms(product.floor_us, product.compute_us + transforms, product.memory_us + transforms)


def _fused(x: Columns, gpu: Machine, c: Constants) -> Terms:
    """One kernel, of 3x3 windows, which has none for gradients of weights."""
    known = BLOCKS[: BLOCKS_SINCE.get(gpu.gpu.compute_capability.split(".")[0])]
    tilings = [
        np.ceil(x["images"] / images) * np.ceil(x["height"] / height) * np.ceil(x["width"] / width)
        for images, height, width in known
    ]
    blocks = x["batch"] * np.ceil(x["filters"] / BLOCK_FILTERS) * np.min(tilings, axis=0)
    flops_per_us = sustained_tflops(x, gpu, c) * 1e6 * c["compute"] * c["fused"]
    block_us = (x["inputs"] + c["start"]) * 2.0 * BLOCK_MULTIPLIES / (flops_per_us / gpu.sms)
    exists = (x["window_size"] == FUSED_WINDOW) & (x["of_weights"] == 0)
    compute = np.where(exists, rounds(blocks / gpu.sms, c) * block_us, np.inf)
    return Terms(c["floor"] / gpu.clock_mhz + np.zeros_like(blocks), compute, memory_us(x["work_bytes"], gpu, c))
