"""Determine the rank of a file, and combine the files of one job."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from tracekit import format
from tracekit.bounds import MAX_RANKS
from tracekit.errors import TraceError
from tracekit.messages import Message
from tracekit.messages import traces as messages
from tracekit.trace import RankTrace, Trace

# Ranks of one job record the same steps; clocks of hosts differ by less than this.
MAX_START_SPREAD_NS = 600 * 10**9

_RANK_IN_HEAD = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,9})\b')
_RANK_IN_FILE_NAME = (
    re.compile(r"(?<!local)(?<!local[_-])(?<!lora[_-])(?<!low[_-])rank[_.-]?(\d{1,9})", re.IGNORECASE),
    re.compile(r"(?:^|[^a-z0-9])r(\d{1,9})(?=[._-]|$)", re.IGNORECASE),
    re.compile(r"(?:^|[_.-])worker[_-]?(\d{1,9})(?=\.|$)", re.IGNORECASE),
)
_RANK_DIRECTORY = re.compile(r"(?:global[_-]?)?rank[_.-]?(\d{1,9})", re.IGNORECASE)


def parse_rank_from_name(name: str) -> int | None:
    """Return the rank in a file's name, or else in its directory's; ``None`` without one, or if several differ."""
    *_, directory, file = ["", *re.split(r"[/\\:]", name)]
    for pattern in _RANK_IN_FILE_NAME:
        found = {int(number) for number in pattern.findall(file)}
        if found:
            return _drop_impossible_rank(found.pop()) if len(found) == 1 else None
    alone = _RANK_DIRECTORY.fullmatch(directory)
    return _drop_impossible_rank(int(alone.group(1))) if alone else None


def parse_rank_from_head(head: bytes) -> int | None:
    """Return the rank that the head of a trace records; ``None`` without one."""
    found = _RANK_IN_HEAD.search(head)
    return _drop_impossible_rank(int(found.group(1))) if found else None


def _drop_impossible_rank(rank: int) -> int | None:
    return rank if rank < MAX_RANKS else None


def read_rank(info: object) -> tuple[int | None, int, tuple[Message, ...]]:
    """Read rank and world size from a trace's ``distributedInfo``, with a warning for each impossible value."""
    if not isinstance(info, dict):
        return None, 1, ()
    noted = {key: info[key] for key in ("rank", "world_size") if info.get(key) is not None}
    bounds = {"rank": range(MAX_RANKS), "world_size": range(1, MAX_RANKS + 1)}
    known = {key: value for key, value in noted.items() if type(value) is int and value in bounds[key]}
    doubts = [messages.RANK_IMPOSSIBLE(key=key, value=repr(noted[key])) for key in noted if key not in known]
    rank, world_size = known.get("rank"), known.get("world_size", 1)
    if rank is not None and rank >= world_size and "world_size" in known:
        doubts.append(messages.RANK_BEYOND_WORLD(rank=rank, world_size=world_size))
    return rank, world_size, tuple(doubts)


def assign_rank(rank: RankTrace) -> RankTrace:
    """Set the rank from the file's name, if the trace does not record it."""
    return replace(rank, rank=parse_rank_from_name(rank.source)) if rank.rank is None else rank


def combine_ranks(ranks: Sequence[RankTrace], given: Collection[int] = ()) -> Trace:
    """Combine the ranks of one job.

    Args:
        ranks: What each recorded, at least one.
        given: Ranks whose files were given but not read.

    Raises:
        TraceError: There are several, and the rank of one is unknown, or two have the same rank.
    """
    if len(ranks) == 1 and len(given) < 2:
        return Trace(tuple(ranks))
    nameless = [rank.source for rank in ranks if rank.rank is None]
    if nameless:
        raise TraceError(messages.RANKS_AMBIGUOUS(files=len(ranks), names=_format_first(nameless)))
    ordered = sorted(ranks, key=_get_sort_key)
    for first, second in pairwise(ordered):
        if first.rank == second.rank:
            raise TraceError(messages.RANK_GIVEN_TWICE(path=first.source, other=second.source, rank=first.rank))
    return Trace(tuple(ordered), tuple(_describe_inconsistencies(ordered, {*given, *map(_get_sort_key, ordered)})))


def _get_sort_key(rank: RankTrace) -> int:
    return -1 if rank.rank is None else rank.rank


def _describe_inconsistencies(ranks: Sequence[RankTrace], given: Collection[int]) -> Iterator[Message]:
    sizes = sorted({rank.world_size for rank in ranks})
    size = max(sizes[-1], max(given) + 1)
    missing = sorted(set(range(size)) - set(given))
    if len(missing) == 1:
        yield messages.RANK_MISSING(rank=missing[0], world_size=size)
    elif missing:
        yield messages.RANKS_MISSING(ranks=abbreviate_ranks(missing), world_size=size)
    if len(sizes) > 1:
        yield messages.WORLD_SIZES_DIFFER(world_sizes=sizes)
    gpus = sorted({rank.device.name for rank in ranks if rank.device})
    if len(gpus) > 1:
        yield messages.GPUS_DIFFER(gpus=gpus)
    starts = [int(start) for rank in ranks if isinstance(start := rank.activities["ts_ns"].min(), int)]
    apart_ns = max(starts) - min(starts) if starts else 0
    if apart_ns > MAX_START_SPREAD_NS:
        yield messages.RECORDED_APART(minutes=apart_ns / 60e9)


def abbreviate_ranks(numbers: Sequence[int]) -> str:
    """Abbreviate numbers, with ten ranges at most: ``[1, 2, 3, 5]`` is ``1-3, 5``."""
    spans = format.format_ranges(numbers)
    return ", ".join(spans[:10]) + (", ..." if len(spans) > 10 else "")


def _format_first(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"
