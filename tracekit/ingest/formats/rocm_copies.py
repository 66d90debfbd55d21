"""Name the copies of rocprofv3's traces as Kineto does."""

import polars as pl

_DIRECTIONS = {"HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD", "HOST_TO_HOST": "HtoH"}


def name_copies(otherwise: pl.Expr) -> pl.Expr:
    """Return ``Memcpy HtoD`` for ``MEMORY_COPY_HOST_TO_DEVICE`` in the column ``name``.

    Args:
        otherwise: The name of copies whose direction isn't told.
    """
    direction = pl.col("name").str.extract(f"({'|'.join(_DIRECTIONS)})$").replace(_DIRECTIONS)
    return pl.coalesce(pl.format("Memcpy {}", direction), otherwise)
