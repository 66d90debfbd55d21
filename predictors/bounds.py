"""Name every limit on what a file of a user may hold, with its reason."""

MAX_TOML_BYTES = 1 << 20
"""A description of a GPU or a cluster takes a few kB, with all of its sources 20 kB."""
MAX_TOML_NESTING = 16
"""Brackets inside brackets; descriptions need three."""
