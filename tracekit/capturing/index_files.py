"""Read how often rows of embedding tables are looked up, from files of indices or of counts.

suffix             holds
.npy .npz          an array of indices for each table; or indices, offsets and lengths of all tables
.pt .pth, .gz      the same as tensors (facebookresearch/dlrm_datasets)
.csv               columns ``draws`` and ``rows``: how many rows were drawn so often
.txt               locality_stats.txt of dlrm_datasets: shares of rows and of draws in bins

Every size that a file names is checked before anything of that size is made.
"""

import gzip
import re
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from math import isfinite
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

import numpy as np
import polars as pl

from tracekit.arrays import Floats, Ints
from tracekit.bounds import (
    MAX_COUNTS_FILE_BYTES,
    MAX_INDEX_FILE_BYTES,
    MAX_TABLE_ROWS,
    MAX_TABLES,
    MAX_UNPACK_RATIO,
    MIN_UNPACKED_BYTES,
)
from tracekit.errors import IndexFileError
from tracekit.messages import Template
from tracekit.messages import models as messages
from tracekit.models.lookups import (
    MAX_COUNT,
    IndexDistribution,
    RecordedPattern,
    estimate_distribution,
    join_distributions,
)
from tracekit.system import find_memory_bytes

OFFSETS, LENGTHS = "offsets", "lengths"
COMBINED = ("indices", OFFSETS, LENGTHS)
"""Names of the arrays of all tables together; lengths have a row for each table."""
TOTALS = re.compile(r"Avg # of indices: (\d+)\s+Avg # of unique cols: (\d+)")
BIN = re.compile(r"^\((\d+)(?:, \d+\]|\+): ([\d.]+)$", re.MULTILINE)
TABLES_IN_NAME = re.compile(r"fbgemm_t(\d+)_")
MAX_SHARES_OFF = 0.05
"""How far shares, which are rounded to three digits, may add up to another number than 1."""
COPY_BYTES = 1 << 20


def read_index_pattern(path: str | Path) -> RecordedPattern:
    """Read a file of indices or counts.

    Returns:
        How look-ups are distributed, the mean of its tables.

    Raises:
        IndexFileError: It can't be read, has no look-ups, or holds what no look-ups are.
    """
    file = Path(path)
    suffix = file.with_suffix("").suffix + file.suffix if file.suffix == ".gz" else file.suffix
    read = READERS.get(suffix.lower())
    if read is None:
        raise _fail(messages.INDICES_UNREADABLE, file, reason=f"its suffix is {suffix or 'missing'}")
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _fail(messages.INDICES_UNREADABLE, file, reason="it isn't a regular file")
        _check_bytes(file, status.st_size, MAX_COUNTS_FILE_BYTES if file.suffix.lower() in TEXTS else None)
        return RecordedPattern(read(file))
    except IndexFileError:
        raise
    except Exception as error:  # whatever numpy, polars and PyTorch raise on a damaged file
        raise _fail(messages.INDICES_UNREADABLE, file, reason=_find_reason(error)) from error


def _fail(template: Template, file: Path, **values: Any) -> IndexFileError:
    return IndexFileError(template(path=str(file), **values))


def _refuse(file: Path, found: str) -> IndexFileError:
    return _fail(messages.INDICES_EMPTY, file, found=found)


def _find_reason(error: Exception) -> str:
    if isinstance(error, UnpicklingError):  # whose text advises to run what the file says
        return "it holds other things than tensors"
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return said.strip().partition("\n")[0] or type(error).__name__


def _check_bytes(file: Path, count: int, limit: int | None = None) -> None:
    """Check a number of bytes that would be read, or made in memory.

    ``limit`` is by default half of this machine's memory.
    """
    most = limit or min(MAX_INDEX_FILE_BYTES, find_memory_bytes() // 2)
    if count > most:
        raise _fail(messages.INDICES_TOO_LARGE, file, limit_bytes=most)


def _check_unpacked(file: Path, unpacked: int) -> None:
    """Check what a file unpacks to, by its size."""
    _check_bytes(file, unpacked)
    _check_bytes(file, unpacked, max(MIN_UNPACKED_BYTES, MAX_UNPACK_RATIO * file.stat().st_size))


def _check_members(file: Path, stream: IO[bytes]) -> None:
    """Check what the members of an archive unpack to, if it is one."""
    if zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as archive:
            _check_unpacked(file, sum(member.file_size for member in archive.infolist()))
    stream.seek(0)


def _read_numpy(file: Path) -> IndexDistribution:
    with file.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            stream.seek(0)
            return _join_tables(file, {"": _load_array(file, "", stream, file.stat().st_size)})
        _check_members(file, stream)
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            if len(members) > MAX_TABLES:
                raise _refuse(file, f"it has {len(members)} arrays, more than {MAX_TABLES}")
            return _join_tables(file, dict(_load_members(file, archive)))


def _load_members(file: Path, archive: zipfile.ZipFile) -> Iterator[tuple[str, Ints]]:
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        with archive.open(member) as stream:
            yield name, _load_array(file, name, stream, member.file_size)


def _load_array(file: Path, name: str, stream: IO[bytes], size: int) -> Ints:
    """Load an array whose bytes are all there, as its header says."""
    numpy = np.lib.format
    major, _ = numpy.read_magic(stream)
    read = numpy.read_array_header_1_0 if major == 1 else numpy.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    _check_type(file, name, dtype)
    count = 1
    for side in shape:
        count *= side
    if min(shape, default=0) < 0 or count * dtype.itemsize > size:
        raise _refuse(file, f"{name or 'it'} is shorter than its header says")
    _check_bytes(file, count * dtype.itemsize)
    found = np.frombuffer(stream.read(count * dtype.itemsize), dtype)
    return found.reshape(shape, order="F" if is_fortran else "C")


def _check_type(file: Path, name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "iu":
        raise _refuse(file, f"{name or 'it'} holds {dtype}")


def _read_torch(file: Path) -> IndexDistribution:
    try:
        import torch
    except ImportError as error:
        raise IndexFileError(messages.INDICES_NEED_TORCH(path=str(file))) from error
    with _unpack(file) as stream:
        _check_members(file, stream)
        found = torch.load(stream, map_location="cpu", weights_only=True)
    if isinstance(found, Mapping):
        return _join_tables(file, {str(name): _to_array(file, tensor) for name, tensor in found.items()})
    arrays = [_to_array(file, tensor) for tensor in (found if isinstance(found, list | tuple) else [found])]
    combined = dict(zip(COMBINED, arrays, strict=False))
    is_combined = len(arrays) == len(COMBINED) and _fit_lengths(combined)
    return _join_tables(file, combined if is_combined else {str(number): one for number, one in enumerate(arrays)})


@contextmanager
def _unpack(file: Path) -> Iterator[IO[bytes]]:
    """Open a file; one that gzip packed is unpacked to a temporary one, as far as it may unpack."""
    if file.suffix.lower() != ".gz":
        with file.open("rb") as stream:
            yield stream
        return
    with tempfile.TemporaryFile() as unpacked, gzip.open(file) as packed:
        while part := packed.read(COPY_BYTES):
            unpacked.write(part)
            _check_unpacked(file, unpacked.tell())
        unpacked.seek(0)
        yield unpacked


def _to_array(file: Path, tensor: Any) -> Ints:
    """Return the array of a tensor that stores all of its elements: one may name the same one any number of times."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise _refuse(file, f"it holds a {type(tensor).__name__}")
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        raise _refuse(file, "it holds tensors without elements")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise _refuse(file, "it holds a tensor of more elements than are stored")
    array: Ints = tensor.detach().numpy()
    return array


def _join_tables(file: Path, arrays: Mapping[str, Ints]) -> IndexDistribution:
    """Join the indices of all tables; arrays of offsets and lengths tell where those of each table begin."""
    for name, array in arrays.items():
        _check_type(file, name, array.dtype)
    tables = {name: array for name, array in arrays.items() if name not in (OFFSETS, LENGTHS)}
    if len(tables) > MAX_TABLES:
        raise _refuse(file, f"it has {len(tables)} tables, more than {MAX_TABLES}")
    for name, array in tables.items():
        if array.size and not (int(array.min()) >= 0 and int(array.max()) < MAX_TABLE_ROWS):
            wrong = int(array.min()) if array.min() < 0 else int(array.max())
            raise _refuse(file, f"{name or 'it'} holds {wrong}")
    parts: list[Ints] = list(tables.values())
    if all(name in arrays for name in COMBINED):
        if not _fit_lengths(arrays):
            raise _refuse(file, "its lengths aren't those of its indices")
        ends = np.cumsum(np.atleast_2d(arrays[LENGTHS]).sum(axis=1))
        parts = np.split(arrays[COMBINED[0]].ravel(), ends[:-1])
    known = [_count_draws(part) for part in parts if part.size]
    if not known:
        raise _refuse(file, "its arrays are empty")
    return join_distributions(known)


def _fit_lengths(arrays: Mapping[str, Ints]) -> bool:
    """Return whether lengths are numbers of all indices."""
    indices, lengths = arrays[COMBINED[0]], arrays[LENGTHS]
    if lengths.ndim > 2 or np.atleast_2d(lengths).shape[0] > MAX_TABLES or not lengths.size:
        return False
    # No length is beyond all indices, so that the sum doesn't leave 64 bits.
    is_possible = int(lengths.min()) >= 0 and int(lengths.max()) <= indices.size
    return is_possible and int(lengths.sum()) == indices.size


def _count_draws(indices: Ints) -> IndexDistribution:
    times, rows = np.unique(np.unique(indices, return_counts=True)[1], return_counts=True)
    return estimate_distribution(times.astype(np.float64), rows.astype(np.float64))


def _read_counts(file: Path) -> IndexDistribution:
    text = file.read_bytes().decode("utf-8")  # which packed files, that polars would unpack, are not
    table = pl.read_csv(BytesIO(text.encode())).select(pl.col("draws", "rows").cast(pl.Float64))
    draws, rows = (table[name].fill_null(float("nan")).to_numpy() for name in table.columns)
    _check_counts(file, "draws", draws)
    _check_counts(file, "rows", rows)
    used = (draws > 0) & (rows > 0)
    if not used.any():
        raise _refuse(file, "no row was drawn")
    if (draws[used] * rows[used]).sum() > MAX_COUNT:
        raise _refuse(file, f"it counts more than {MAX_COUNT} draws")
    return estimate_distribution(draws[used], rows[used])


def _check_counts(file: Path, name: str, numbers: Floats) -> None:
    """Check that numbers are whole, and not too large."""
    wrong = ~((numbers >= 0) & (numbers <= MAX_COUNT) & (numbers == np.rint(numbers)))
    if wrong.any():
        raise _refuse(file, f"{name} holds {numbers[wrong][0]:g}")


def _read_locality(file: Path) -> IndexDistribution:
    """Read the first data set: bins of rows by how often they are drawn, first as shares of rows, then of draws."""
    first = file.read_text(encoding="utf-8").partition("\n\n")[0]
    totals, bins = TOTALS.search(first), [float(share) for _, share in BIN.findall(first)]
    half = len(bins) // 2
    rows, draws = np.array(bins[:half]), np.array(bins[half : 2 * half])
    used = (rows > 0) & (draws > 0)
    if totals is None or not used.any():
        raise _refuse(file, "it has no histograms")
    _check_shares(file, rows, draws)
    all_draws, all_rows = (int(number[:20]) for number in totals.groups())
    if not 1 <= all_rows <= all_draws <= MAX_COUNT:
        raise _refuse(file, f"it counts {all_draws} indices of {all_rows} rows")
    name = TABLES_IN_NAME.search(first)
    tables = int(name[1][:20]) if name else 1
    if not 1 <= tables <= MAX_TABLES:
        raise _refuse(file, f"it counts {tables} tables")
    counts = all_rows * rows[used] / rows[used].sum()
    times = all_draws * draws[used] / draws[used].sum() / counts
    whole = estimate_distribution(np.maximum(times, 1.0), counts)
    return IndexDistribution(whole.counts, whole.shares * tables, tables)


def _check_shares(file: Path, *histograms: Floats) -> None:
    for shares in histograms:
        total = float(shares.sum())
        if not (isfinite(total) and abs(total - 1) <= MAX_SHARES_OFF):
            raise _refuse(file, f"its shares add up to {total:g}")


TEXTS = (".csv", ".txt")
READERS: dict[str, Callable[[Path], IndexDistribution]] = {
    **dict.fromkeys((".npy", ".npz"), _read_numpy),
    **dict.fromkeys((".pt", ".pth", ".pt.gz", ".pth.gz"), _read_torch),
    ".csv": _read_counts,
    ".txt": _read_locality,
}
