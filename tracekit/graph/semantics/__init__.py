"""Edges that CUDA, HIP and PyTorch guarantee. Where a trace lacks a fact, a rule of ``inferred`` supplies it."""
