"""Compute the terms of convolutions: as implicit GEMMs, or by Winograd algorithms, which multiply less."""

from __future__ import annotations

import numpy as np

from predictors.arrays import Columns
from predictors.hardware import Hardware
from predictors.laws.gemm import (
    DEEP_K_SPLITS,
    adapt_to_vector_units,
    compute_gemm_fp32_terms,
    compute_gemm_terms,
    compute_sustained_tflops,
    compute_tiled_gemm_terms,
)
from predictors.laws.terms import Constants, LatencyTerms, compute_memory_us, count_waves

WINOGRAD_TILE_OUTPUTS = 4
"""Outputs of a tile of the transformed products, each way: F(4x4, 3x3) takes 36 multiplications for 16 (Lavin and Gray,
arXiv:1509.09308), as cuDNN's batches of 36 products show."""
IMAGE_MULTIPLE = 16
"""The transformed products of fewer images are as large, by the grids of cuDNN's kernels."""
FUSED_BLOCK_SHAPES = ((1, 8, 16), (4, 8, 4), (4, 4, 8), (4, 2, 16), (2, 4, 16), (2, 8, 8))
"""Images, rows and columns of outputs that a block of cuDNN's fused kernels computes, by their names (tile148t: one
image, 4 x 8 tiles of 2 x 2 outputs) and their grids."""
FUSED_BLOCK_SHAPE_COUNTS = {"7": 1, "8": 2, "9": 2, "10": 2, "12": 2}
"""How many of these there are for a compute capability: before Volta all."""
FUSED_BLOCK_FILTERS = 32
"""Output channels of such a block."""
FUSED_BLOCK_MULTIPLIES = 16 * 32 * FUSED_BLOCK_FILTERS
"""Of one for each input channel: F(2x2, 3x3) takes 16 for a tile, of which a block has 32."""
FUSED_WINDOW_SIZE = 9


def compute_conv_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """A convolution on the matrix units, as the product that it implies."""
    return compute_gemm_terms(x, gpu, c, DEEP_K_SPLITS)


def compute_conv_fp32_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """A convolution on the vector units, by the quickest way."""
    ways = [
        compute_gemm_fp32_terms(x, gpu, c),
        _compute_winograd_terms(x, gpu, c),
        _compute_fused_winograd_terms(x, gpu, c),
    ]
    best = np.argmin([way.time_us for way in ways], axis=0)
    floor, compute, memory = ([getattr(way, part) for way in ways] for part in ("floor_us", "compute_us", "memory_us"))
    return LatencyTerms(np.choose(best, floor), np.choose(best, compute), np.choose(best, memory))


def _compute_winograd_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """Kernels that transform the inputs and the filters, a batch of products, and one that transforms back."""
    images = IMAGE_MULTIPLE * np.ceil(x["images"] / IMAGE_MULTIPLE)
    tiles = images * np.ceil(x["height"] / WINOGRAD_TILE_OUTPUTS) * np.ceil(x["width"] / WINOGRAD_TILE_OUTPUTS)
    inputs, filters, of_weights = x["inputs"], x["filters"], x["of_weights"] > 0
    batch = x["batch"] * (WINOGRAD_TILE_OUTPUTS + np.sqrt(x["window_size"]) - 1) ** 2
    moved = batch * x["size"] * (tiles * (inputs + filters) + inputs * filters)
    m, k = np.where(of_weights, inputs, tiles), np.where(of_weights, tiles, inputs)
    products = {**x, "batch": batch, "m": m, "n": filters, "k": k, "work_bytes": moved}
    batched = {**c, "compute": c["compute"] * c["batched"]}
    product = compute_tiled_gemm_terms(adapt_to_vector_units(products, gpu, c), gpu, batched, DEEP_K_SPLITS)
    # One kernel after the other: what the transforms take comes on top of either.
    transforms = (x["work_bytes"] + moved) / (gpu.bandwidth_gbps * c["transform"]) / 1e3
    return LatencyTerms(product.floor_us, product.compute_us + transforms, product.memory_us + transforms)


def _compute_fused_winograd_terms(x: Columns, gpu: Hardware, c: Constants) -> LatencyTerms:
    """One kernel, of 3x3 windows, which has none for gradients of weights."""
    known = FUSED_BLOCK_SHAPES[: FUSED_BLOCK_SHAPE_COUNTS.get(gpu.gpu.compute_capability.split(".")[0])]
    tilings = [
        np.ceil(x["images"] / images) * np.ceil(x["height"] / height) * np.ceil(x["width"] / width)
        for images, height, width in known
    ]
    blocks = x["batch"] * np.ceil(x["filters"] / FUSED_BLOCK_FILTERS) * np.min(tilings, axis=0)
    flops_per_us = compute_sustained_tflops(x, gpu, c) * 1e6 * c["compute"] * c["fused"]
    block_us = (x["inputs"] + c["start"]) * 2.0 * FUSED_BLOCK_MULTIPLIES / (flops_per_us / gpu.sms)
    exists = (x["window_size"] == FUSED_WINDOW_SIZE) & (x["of_weights"] == 0)
    compute = np.where(exists, count_waves(blocks / gpu.sms, c) * block_us, np.inf)
    return LatencyTerms(
        c["floor"] / gpu.clock_mhz + np.zeros_like(blocks), compute, compute_memory_us(x["work_bytes"], gpu, c)
    )
