"""Split the tables of a file that was merged from several ranks, by labels of processes or by launches.

Labels stand in process ids: SGLang's merged traces write ``"pid": "[TP01-DP00-PP00-EP00] 83"``.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from tracekit.arrays import is_unique
from tracekit.bounds import MAX_DEVICES, MAX_MERGED_RANKS
from tracekit.errors import NotATraceError
from tracekit.ingest.correlations import renew_reused_ids
from tracekit.ingest.event_decoder import JSON_ERRORS
from tracekit.ingest.fields import ACTIVITY_KINDS, TABLES
from tracekit.ingest.window import FillableStream
from tracekit.messages import Message, traces
from tracekit.messages import traces as messages
from tracekit.trace import RankTrace

PID_BITS = 40
"""Process ids have fewer bits: above them stands the number of the label."""

_LABELLED_PID = re.compile(rb'("pid"[ \t]?:[ \t]?)"(\[[^\[\]"\\]{1,80}\]) (-?\d{1,12})"')
_UNFINISHED_PID = re.compile(rb'"(?:p(?:i(?:d(?:"[^,}]{0,120})?)?)?)?\Z')
_PARALLEL_RANK = re.compile(rb"(TP|DP|PP|EP)[-_]?(\d{1,7})")
_BLOCK_BYTES = 1 << 20


def has_rank_labels(head: bytes) -> bool:
    """Return whether processes are labelled, by the first part of a trace."""
    return _LABELLED_PID.search(head) is not None


class UnlabelledStream:
    """The text of a merged trace with numbers for labelled process ids: the label's number, then the process id."""

    def __init__(self, stream: FillableStream) -> None:
        self._numbers: dict[bytes, int] = {}
        self._stream = stream
        self._ready = memoryview(b"")
        self._held = b""
        self._is_over = False

    @property
    def labels(self) -> list[bytes]:
        """Labels in the order of their first process id."""
        return list(self._numbers)

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer from its start; return 0 at the end."""
        while not self._ready and not self._is_over:
            self._replace_block()
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _replace_block(self) -> None:
        block = bytearray(_BLOCK_BYTES)
        size = self._stream.readinto(memoryview(block))
        text = self._held + bytes(block[:size])
        self._is_over = size == 0
        unfinished = None if self._is_over else _UNFINISHED_PID.search(text, max(len(text) - 130, 0))
        stop = unfinished.start() if unfinished else len(text)
        self._held = text[stop:]
        self._ready = memoryview(_LABELLED_PID.sub(self._number_pid, text[:stop]))

    def _number_pid(self, found: re.Match[bytes]) -> bytes:
        key, label, pid = found.groups()
        number = self._numbers.setdefault(label, len(self._numbers))
        return b"%b%d" % (key, number << PID_BITS | max(int(pid), 0))


def number_ranks(labels: Sequence[bytes]) -> list[int]:
    """Return the rank of each label.

    Ranks count as in SGLang: replicas first, then pipeline stages, then tensor parallel ranks. With attention in data
    parallel (the DP rank follows from the TP rank) stage and tensor parallel rank suffice. Labels of any other kind are
    numbered in their order.
    """
    found = [{kind: int(number) for kind, number in _PARALLEL_RANK.findall(label)} for label in labels]
    sizes = {kind: 1 + max(one.get(kind, 0) for one in found) for kind in (b"DP", b"PP", b"TP", b"EP")}
    for kinds in ((b"PP", b"TP"), (b"DP", b"PP", b"TP"), (b"DP", b"PP", b"TP", b"EP")):
        numbers = [0] * len(found)
        for kind in kinds:
            numbers = [n * sizes[kind] + one.get(kind, 0) for n, one in zip(numbers, found, strict=True)]
        if len(set(numbers)) == len(numbers):
            return numbers
    return list(range(len(labels)))


Tables = Mapping[str, pl.DataFrame]

MIN_LAUNCHED_FRACTION = 0.95
"""Least part of a GPU's activities whose launches are in the process that drives it: others began before recording."""


class RankPart(NamedTuple):
    """What a file holds of one rank.

    Attributes:
        tables: Its rows by table.
        keys: Top-level keys of the file, as JSON, with this rank's ``distributedInfo`` and GPUs.
        warning: How it was told from the others, or what told its launches apart; ``None`` if nothing had to.
    """

    tables: Tables
    keys: Mapping[str, bytes]
    warning: Message | None = None


def split_ranks(tables: Tables, keys: Mapping[str, bytes], labels: Sequence[bytes], source: str) -> list[RankPart]:
    """Split the tables of a file by rank; one part for a file of one rank.

    Args:
        tables: Its tables by name.
        keys: Its top-level keys, as JSON.
        labels: Labels of its processes, whose numbers stand in the upper bits of process ids.
        source: Its name in messages.

    Raises:
        NotATraceError: It is merged from several processes, and they can't be told apart.
    """
    if len(labels) > 1:
        return list(_split_by_label(tables, keys, labels, source))
    if labels:
        tables = {name: _drop_label(table) for name, table in tables.items()}
    if _has_one_process(tables["calls"]):
        return [RankPart(tables, keys)]
    launching = _join_launches(tables)
    processes = _count_processes(launching)
    if processes == 1:
        return [_renew_ids(tables, keys) or RankPart(tables, keys)]
    # An export of tracekit's own has the timelines of one run on several GPUs: its version marks it.
    is_export = keys.get("tracekit", b"").startswith(b'"')
    drivers = {} if is_export else _match_processes(launching, tables)
    if not drivers and not is_export and (renewed := _renew_ids(tables, keys)):
        return [renewed]
    if not drivers:
        raise NotATraceError(messages.TRACES_MERGED(path=source, processes=processes))
    return list(_split_by_process(tables, keys, drivers, source))


def split_recorded_processes(
    tables: Tables, keys: Mapping[str, bytes], labels: Sequence[bytes], source: str
) -> list[RankPart]:
    """Split the tables of a file whose activities note their process: each process that ran kernels is a rank.

    Ranks are numbered by GPU and process. What other processes did is left out; of a file of one rank, their calls
    are, whose correlation ids may be those of the rank's. Arguments and errors are those of :func:`split_ranks`, which
    splits what notes no process.
    """
    found = _list_kernel_processes(tables)
    if found.is_empty():
        return split_ranks(tables, keys, labels, source)
    if found.height > MAX_MERGED_RANKS:
        raise NotATraceError(messages.TRACES_MERGED(path=source, processes=found.height))
    processes = found["pid"].to_list()
    if len(processes) == 1:
        own = pl.col("pid").is_null() | (pl.col("pid") == processes[0])
        asked = {name: tables[name].filter(own) for name in (*ACTIVITY_KINDS, "calls", "syncs")}
        return [RankPart({**tables, **asked}, keys)]
    left_out = sum(tables[name].filter(~pl.col("pid").is_in(processes)).height for name in TABLES)
    has_own_gpu = found["device"].explode().is_unique().all()
    said = messages.RANKS_BY_DEVICE if has_own_gpu else messages.RANKS_SHARE_GPU
    warning = said(path=source, ranks=len(processes), left_out=left_out)
    return [
        RankPart(
            {name: table.filter(pl.col("pid") == process) for name, table in tables.items()},
            _set_rank(keys, rank, len(processes), keys.get("deviceProperties")),
            warning,
        )
        for rank, process in enumerate(processes)
    ]


def _list_kernel_processes(tables: Tables) -> pl.DataFrame:
    """List the processes that ran kernels, or if none did, copies and sets, by GPU: ``pid``, ``device``."""
    for kinds in (("kernel",), ACTIVITY_KINDS):
        activities = pl.concat(tables[kind].select("pid", "device") for kind in kinds).drop_nulls("pid")
        if activities.height:
            break
    devices = activities.group_by("pid").agg(pl.col("device").unique())
    return devices.sort(pl.col("device").list.min(), "pid", nulls_last=True)


def _renew_ids(tables: Tables, keys: Mapping[str, bytes]) -> RankPart | None:
    """Tell the uses of correlation ids apart, where one process after another, or one of them, counts them anew."""
    renewed = renew_reused_ids(tables)
    return None if renewed is None else RankPart(renewed[0], keys, traces.IDS_REUSED(ids=renewed[1]))


def number_documents(ranks: Sequence[RankTrace]) -> list[RankTrace] | None:
    """Number the ranks whose traces are documents of one file; ``None`` if they aren't ranks of one job.

    They are if each notes another rank, or if none does and each ran on another GPU.
    """
    source = ranks[0].source
    noted = {rank.rank for rank in ranks}
    if None not in noted and len(noted) == len(ranks):
        warning = messages.RANKS_IN_ONE_FILE(path=source, ranks=len(ranks))
        numbered = list(ranks)
    else:
        used = [rank.activities["device"].drop_nulls().unique().to_list() for rank in ranks]
        devices = [of_rank[0] for of_rank in used if len(of_rank) == 1]
        if noted != {None} or len(set(devices)) != len(ranks) or not max(devices) < MAX_DEVICES:
            return None
        warning = messages.RANKS_BY_DEVICE(path=source, ranks=len(ranks), left_out=0)
        size = max(devices) + 1
        numbered = [replace(rank, rank=device, world_size=size) for rank, device in zip(ranks, devices, strict=True)]
    numbered[0] = replace(numbered[0], warnings=(warning, *numbered[0].warnings))
    return numbered


def _split_by_label(
    tables: Tables, keys: Mapping[str, bytes], labels: Sequence[bytes], source: str
) -> Iterator[RankPart]:
    ranks = number_ranks(labels)
    devices = _share_devices(keys, len(labels))
    warning = messages.RANKS_IN_ONE_FILE(path=source, ranks=len(ranks))
    label = (pl.col("pid") // (1 << PID_BITS)).fill_null(0).clip(0)
    parts = {
        name: table.with_columns(label=label).partition_by("label", as_dict=True, include_key=False)
        for name, table in tables.items()
    }
    for number in np.argsort(ranks).tolist():
        own = {name: _drop_label(found.get((number,), tables[name].clear())) for name, found in parts.items()}
        yield RankPart(own, _set_rank(keys, ranks[number], max(ranks) + 1, devices[number]), warning)


def _drop_label(table: pl.DataFrame) -> pl.DataFrame:
    return table.with_columns(pid=pl.col("pid") % (1 << PID_BITS))


def _split_by_process(
    tables: Tables, keys: Mapping[str, bytes], drivers: Mapping[int, int], source: str
) -> Iterator[RankPart]:
    devices = sorted(drivers)
    others = ~pl.col("pid").is_in([*devices, *drivers.values()])
    left_out = sum(tables[name].filter(others).height for name in TABLES)
    warning = messages.RANKS_BY_DEVICE(path=source, ranks=len(devices), left_out=left_out)
    ranks = devices if devices[-1] < MAX_DEVICES else range(len(devices))
    for rank, device in zip(ranks, devices, strict=True):
        own = pl.col("pid").is_in([device, drivers[device]])
        yield RankPart(
            {name: table.filter(own) for name, table in tables.items()},
            _set_rank(keys, rank, max(ranks) + 1, keys.get("deviceProperties")),
            warning,
        )


def _set_rank(keys: Mapping[str, bytes], rank: int, least_size: int, devices: bytes | None) -> dict[str, bytes]:
    """Replace the rank and GPUs of a file; its world size counts if it has room for the ranks."""
    try:
        info = msgspec.json.decode(keys.get("distributedInfo", b"{}"), type=dict[str, object])
    except JSON_ERRORS:
        info = {}
    size = info.get("world_size")
    info |= {"rank": rank, "world_size": size if isinstance(size, int) and size >= least_size else least_size}
    return {
        **keys,
        "distributedInfo": msgspec.json.encode(info),
        **({} if devices is None else {"deviceProperties": devices}),
    }


def _share_devices(keys: Mapping[str, bytes], parts: int) -> list[bytes | None]:
    """Divide the GPUs of a file, which are listed rank by rank; every rank has all of them if that can't be."""
    listed = keys.get("deviceProperties")
    try:
        devices = msgspec.json.decode(listed or b"[]", type=list[msgspec.Raw])
    except JSON_ERRORS:
        devices = []
    size, rest = divmod(len(devices), parts)
    if rest or not size:
        return [listed] * parts
    return [msgspec.json.encode(devices[at : at + size]) for at in range(0, len(devices), size)]


def _join_launches(tables: Tables) -> pl.DataFrame:
    """Join each call with the activities of its correlation id."""
    activities = pl.concat(tables[kind].select("correlation", "ts_ns", device="pid") for kind in ACTIVITY_KINDS)
    calls = tables["calls"].select("correlation", "name", "pid", call_ns="ts_ns")
    return calls.drop_nulls("correlation").join(activities.drop_nulls("correlation"), on="correlation")


def _has_one_process(calls: pl.DataFrame) -> bool:
    """Return whether the calls show by themselves that one process made them: each has a correlation id of its own."""
    return calls["pid"].n_unique() <= 1 and is_unique(calls["correlation"])


def _count_processes(launching: pl.DataFrame) -> int:
    """Count the processes that launched activities.

    Where a merge gave all ranks one process, most correlation ids launch several times.
    """
    calls = launching.select("correlation", "name", "pid", "call_ns").unique()
    uses = calls.group_by("correlation", "name").len()
    processes = max(launching["pid"].drop_nulls().n_unique(), 1)
    if uses["correlation"].n_unique() > 1 and 2 * uses.filter(pl.col("len") > 1).height > uses.height:
        processes = max(processes, int(np.median(uses["len"].to_numpy())))
    return processes


def _match_processes(launching: pl.DataFrame, tables: Tables) -> dict[int, int]:
    """Return the process that drives each GPU; empty unless there is exactly one way to match all of them.

    A process can drive a GPU if it launched the GPU's activities, each before it started.
    """
    activities = pl.concat(tables[kind].select("correlation", device="pid") for kind in ACTIVITY_KINDS)
    totals = activities.group_by("device").agg(activities=pl.col("correlation").count())
    launched = launching.group_by("device", "pid").agg(
        launched=pl.col("correlation").n_unique(), early=(pl.col("call_ns") > pl.col("ts_ns")).sum()
    )
    possible = launched.join(totals, on="device").filter(
        (pl.col("early") == 0) & (pl.col("launched") >= MIN_LAUNCHED_FRACTION * pl.col("activities"))
    )
    if totals.height != launching["pid"].n_unique() or not 2 <= totals.height <= MAX_MERGED_RANKS:
        return {}
    candidates: dict[int, set[int]] = defaultdict(set)
    for device, process in possible.select("device", "pid").drop_nulls().rows():
        candidates[device].add(process)
    return _find_only_matching(candidates) if len(candidates) == totals.height else {}


def _find_only_matching(candidates: Mapping[int, set[int]]) -> dict[int, int]:
    """Match each device to a process by elimination; empty where more than one way is left."""
    open_devices = {device: set(processes) for device, processes in candidates.items()}
    matched: dict[int, int] = {}
    while (single := next((device for device, left in open_devices.items() if len(left) == 1), None)) is not None:
        (process,) = open_devices.pop(single)
        matched[single] = process
        for left in open_devices.values():
            left.discard(process)
    return {} if open_devices else matched
