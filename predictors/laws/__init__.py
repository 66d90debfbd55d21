"""Compute the time of each kernel family from shape, datasheet and constants."""
