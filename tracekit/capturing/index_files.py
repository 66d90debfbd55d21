"""Read how often rows of embedding tables are looked up, from files of indices or of counts.

suffix             holds
.npy .npz          an array of indices for each table; or indices, offsets and lengths of all tables
.pt .pth, .gz      the same as tensors (facebookresearch/dlrm_datasets)
.csv               columns ``draws`` and ``rows``: how many rows were drawn so often
.txt               locality_stats.txt of dlrm_datasets: shares of rows and of draws in bins
"""

import gzip
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.bounds import MAX_INDEX_FILE_BYTES
from tracekit.errors import IndexFileError
from tracekit.index_distribution import IndexDistribution, RecordedPattern, estimate_distribution, join_distributions
from tracekit.messages import index_files as messages

OFFSETS, LENGTHS = "offsets", "lengths"
COMBINED = ("indices", OFFSETS, LENGTHS)
"""Names of the arrays of all tables together; lengths have a row for each table."""
TOTALS = re.compile(r"Avg # of indices: (\d+)\s+Avg # of unique cols: (\d+)")
BIN = re.compile(r"^\((\d+)(?:, \d+\]|\+): ([\d.]+)$", re.MULTILINE)
TABLES_IN_NAME = re.compile(r"fbgemm_t(\d+)_")


def read_index_pattern(path: str | Path) -> RecordedPattern:
    """Read a file of indices or counts.

    Args:
        path: The file.

    Returns:
        How look-ups are distributed, the mean of its tables.

    Raises:
        IndexFileError: It can't be read, or has no look-ups.
    """
    file = Path(path)
    suffix = file.with_suffix("").suffix + file.suffix if file.suffix == ".gz" else file.suffix
    read = READERS.get(suffix.lower())
    if read is None:
        raise IndexFileError(messages.INDICES_UNREADABLE(path=str(path), reason=f"its suffix is {suffix or 'missing'}"))
    try:
        if file.stat().st_size > MAX_INDEX_FILE_BYTES:
            raise IndexFileError(messages.INDICES_TOO_LARGE(path=str(path), limit_bytes=MAX_INDEX_FILE_BYTES))
        return RecordedPattern(read(file))
    except IndexFileError:
        raise
    except Exception as error:  # whatever numpy, polars and PyTorch raise on a damaged file
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = said.strip().partition("\n")[0] or type(error).__name__
        raise IndexFileError(messages.INDICES_UNREADABLE(path=str(path), reason=reason)) from error


def _read_numpy(file: Path) -> IndexDistribution:
    found = np.load(file, allow_pickle=False)
    if isinstance(found, np.ndarray):
        return _join_tables(file, {"": found})
    with found:
        return _join_tables(file, {name: found[name] for name in found.files})


def _read_torch(file: Path) -> IndexDistribution:
    try:
        import torch
    except ImportError as error:
        raise IndexFileError(messages.INDICES_NEED_TORCH(path=str(file))) from error
    with cast(IO[bytes], gzip.open(file)) if file.suffix == ".gz" else file.open("rb") as stream:
        found = torch.load(stream, map_location="cpu", weights_only=True)
    if isinstance(found, Mapping):
        return _join_tables(file, {name: tensor.numpy() for name, tensor in found.items()})
    arrays = [tensor.numpy() for tensor in (found if isinstance(found, list | tuple) else [found])]
    combined = dict(zip(COMBINED, arrays, strict=False))
    is_combined = len(arrays) == len(COMBINED) and _fit_lengths(combined)
    return _join_tables(file, combined if is_combined else {str(number): one for number, one in enumerate(arrays)})


def _join_tables(file: Path, arrays: Mapping[str, Any]) -> IndexDistribution:
    """Join the indices of all tables; arrays of offsets and lengths tell where those of each table begin."""
    tables = {name: array for name, array in arrays.items() if name not in (OFFSETS, LENGTHS)}
    for name, array in tables.items():
        if array.dtype.kind not in "iu":
            raise IndexFileError(messages.INDICES_EMPTY(path=str(file), found=f"{name or 'it'} holds {array.dtype}"))
        if (least := int(array.min(initial=0))) < 0:
            raise IndexFileError(messages.INDICES_EMPTY(path=str(file), found=f"{name or 'it'} holds {least}"))
    parts: list[Ints] = list(tables.values())
    if all(name in arrays for name in COMBINED):
        if not _fit_lengths(arrays):
            raise IndexFileError(
                messages.INDICES_EMPTY(path=str(file), found="its lengths aren't those of its indices")
            )
        ends = np.cumsum(np.atleast_2d(arrays[LENGTHS]).sum(axis=1))
        parts = np.split(parts[0].ravel(), ends[:-1])
    known = [_count_draws(part) for part in parts if part.size]
    if not known:
        raise IndexFileError(messages.INDICES_EMPTY(path=str(file), found="its arrays are empty"))
    return join_distributions(known)


def _fit_lengths(arrays: Mapping[str, Any]) -> bool:
    return int(arrays[LENGTHS].sum()) == arrays[COMBINED[0]].size


def _count_draws(indices: Ints) -> IndexDistribution:
    times, rows = np.unique(np.unique(indices, return_counts=True)[1], return_counts=True)
    return estimate_distribution(times.astype(np.float64), rows.astype(np.float64))


def _read_counts(file: Path) -> IndexDistribution:
    table = pl.read_csv(file).select(pl.col("draws", "rows").cast(pl.Float64))
    used = table.filter(pl.all_horizontal(pl.col("draws", "rows").is_finite() & (pl.col("draws", "rows") > 0)))
    if used.is_empty():
        raise IndexFileError(messages.INDICES_EMPTY(path=str(file), found="no row was drawn"))
    return estimate_distribution(used["draws"].to_numpy(), used["rows"].to_numpy())


def _read_locality(file: Path) -> IndexDistribution:
    """Read the first data set: bins of rows by how often they are drawn, first as shares of rows, then of draws."""
    text = file.read_text(encoding="utf-8")
    first = text.partition("\n\n")[0]
    totals, bins = TOTALS.search(first), [float(share) for _, share in BIN.findall(first)]
    half = len(bins) // 2
    rows, draws = np.array(bins[:half]), np.array(bins[half : 2 * half])
    used = (rows > 0) & (draws > 0)
    if totals is None or not used.any():
        raise IndexFileError(messages.INDICES_EMPTY(path=str(file), found="it has no histograms"))
    counts = int(totals[2]) * rows[used] / rows[used].sum()
    times = int(totals[1]) * draws[used] / draws[used].sum() / counts
    name = TABLES_IN_NAME.search(first)
    return _spread_over_tables(estimate_distribution(np.maximum(times, 1.0), counts), int(name[1]) if name else 1)


def _spread_over_tables(whole: IndexDistribution, tables: int) -> IndexDistribution:
    """Return the mean of tables whose rows were counted together."""
    return IndexDistribution(whole.counts, whole.shares * tables, tables)


READERS: dict[str, Callable[[Path], IndexDistribution]] = {
    **dict.fromkeys((".npy", ".npz"), _read_numpy),
    **dict.fromkeys((".pt", ".pth", ".pt.gz", ".pth.gz"), _read_torch),
    ".csv": _read_counts,
    ".txt": _read_locality,
}
