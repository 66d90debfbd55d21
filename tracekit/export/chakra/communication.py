"""Collectives as Chakra's converter describes them and ASTRA-sim reads them.

- ``comm_size`` is what a rank puts in: of an all-gather its own part, unlike nccl-tests' size.
- ASTRA-sim pairs messages by size, so that it waits for ever where an all-to-all's ranks send unlike amounts: all get
  the largest. It does so, too, where a group has one rank: then nothing is sent.
- Names of process groups are numbers, whose ranks a file beside the traces lists; 0 is the group of all ranks.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import polars as pl
from msgspec import DecodeError

from tracekit.graph.ranks.match import match_collectives
from tracekit.ingest.formats.chakra_schema import SIZED_BY_PART

ALL_RANKS = "0"
MAX_NUMBER = 2_000
"""ASTRA-sim multiplies a group's number by a million, as a 32-bit integer."""


class ProcessGroup(NamedTuple):
    """A process group; ``number`` is its name in the files."""

    number: str
    ranks: list[int]


def compute_comm_sizes(kernels: pl.DataFrame) -> pl.Series:
    """Return ``comm_size`` of each kernel in bytes; null without a collective, its size or another rank."""
    size = pl.col("bytes")
    if kernels["rank"].n_unique() > 1:
        matched = match_collectives(kernels)[0].select("collective", "row").rename({"collective": "matched"})
        rows = kernels.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
        kernels = rows.join(matched, on="row", how="left", maintain_order="left")
        is_matched = pl.col("matched").is_not_null()
        size = pl.when(is_matched).then(size.max().over("matched")).otherwise(size)
    members = pl.coalesce("ranks", pl.lit(kernels["rank"].n_unique()))
    part = pl.when(pl.col("collective").is_in(SIZED_BY_PART)).then(size // members).otherwise(size)
    is_sent = pl.col("collective").is_not_null() & pl.col("ranks").ne_missing(1)
    return kernels.select(comm_size=pl.when(is_sent).then(part).cast(pl.Int64))["comm_size"]


def number_groups(kernels: pl.DataFrame) -> dict[tuple[str, str], ProcessGroup]:
    """Number the process groups by name and recorded ranks; those whose ranks aren't known are left out."""
    found = kernels.select("process_group", "group_ranks").drop_nulls().unique().sort("process_group", "group_ranks")
    listed = [(name, text, ranks) for name, text in found.iter_rows() if (ranks := _parse_ranks(text))]
    free, taken = _list_free_numbers([name for name, _, _ in listed]), set[str]()
    groups = {}
    for name, text, ranks in listed:
        number = name if _is_number(name) and name not in taken else next(free)
        taken.add(number)
        groups[name, text] = ProcessGroup(number, ranks)
    return groups


def encode_groups(groups: Iterable[ProcessGroup]) -> bytes:
    """Encode groups for ASTRA-sim's ``--comm-group-configuration``."""
    return msgspec.json.encode({group.number: group.ranks for group in groups if group.number != ALL_RANKS})


def _is_number(name: str) -> bool:
    return name.isdecimal() and str(int(name)) == name and int(name) < MAX_NUMBER


def _list_free_numbers(names: list[str]) -> Iterator[str]:
    """Yield numbers that no group has; 0 stays the group of all ranks."""
    used = {int(name) for name in names if _is_number(name)}
    return (str(number) for number in range(1, MAX_NUMBER) if number not in used)


def _parse_ranks(text: str) -> list[int] | None:
    """Return the ranks of a process group; ``None`` for a list that PyTorch shortened."""
    try:
        return msgspec.json.decode(text, type=list[int])
    except DecodeError:
        return None
