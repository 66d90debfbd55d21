"""Trace files to a :class:`~tracekit.trace.Trace`."""

import io
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from tracekit.errors import (
    DamagedTraceError,
    NoGpuActivityError,
    NotATraceError,
    TraceError,
    TraceTooLargeError,
)
from tracekit.ingest import left_out
from tracekit.ingest import memory as sizes
from tracekit.ingest import ranks as places
from tracekit.ingest.source import Given, Inputs, Source, expand
from tracekit.trace import RankTrace, Trace

__all__ = ["Inputs", "Ranks", "load", "load_bytes"]

Progress = Callable[[str], None]
Ranks = Sequence[int] | Literal["lowest"] | None

NO_STACKS = "no Python calls were recorded: kernels have no module or Python line (with_stack=True)"


def load(
    inputs: Inputs,
    *,
    ranks: Ranks = None,
    cache: bool = True,
    memory: str | int | None = None,
    stacks: bool = False,
    progress: Progress = lambda stage: None,
) -> Trace:
    """Read the PyTorch profiler traces of one job, a file per rank.

    Args:
        inputs: A file (``.json``, gzip, zstd or zip), a directory, a glob, a URI, ``-`` for standard input, or
            several of them.
        ranks: The ranks to read, or ``"lowest"`` for the lowest one only; all by default.
        cache: Whether decoded files are kept on this machine, and taken from there.
        memory: The most that the tables may take, such as ``"2G"``; by default half of the machine's memory.
        stacks: Whether Python's calls are read, for modules and Python lines of kernels.
        progress: Called with what is being done.

    Raises:
        TraceError: A file is missing, damaged, no profiler trace, or holds no GPU activity; a rank is missing,
            there twice, or can't be told.
        TracekitError: ``memory`` is no size.
    """
    given = expand(inputs)
    loader = _Loader(given, cache, sizes.to_bytes(memory), stacks, progress)
    trace = loader.load(given.traces, ranks)
    return replace(trace, warnings=(*given.doubts, *left_out.warnings(loader.failed, given.others), *trace.warnings))


def load_bytes(data: bytes, source: str, *, stacks: bool = False) -> Trace:
    """Read a trace that is already in memory, uncompressed.

    Args:
        data: The JSON text.
        source: What to call it in messages.
        stacks: Whether Python's calls are read.

    Raises:
        TraceError: As for :func:`load`.
    """
    from tracekit.ingest.decode import decode

    return places.combine([places.placed(decode(io.BytesIO(data), source, stacks=stacks))])


class _Loader:
    """Reads files one by one; together their tables stay within the memory allowed.

    Those of a directory, a glob or an archive that can't be read are left out, and kept in ``failed``.
    """

    def __init__(self, given: Given, cache: bool, memory_bytes: int, stacks: bool, progress: Progress) -> None:
        self.failed: list[tuple[Source, TraceError]] = []
        self._given = given
        self._captures: dict[str, RankTrace] = {}
        self._cache = cache
        self._memory_bytes = memory_bytes
        self._stacks = stacks
        self._progress = progress

    def load(self, sources: Sequence[Source], ranks: Ranks) -> Trace:
        told = _told(sources) if ranks is not None and len(sources) > 1 else None
        if told is None:
            return self._select(places.combine(self._read_all(sources)), ranks)
        wanted = [min(told)] if ranks == "lowest" else list(ranks or told)
        absent = [rank for rank in wanted if rank not in told]
        if absent:
            raise _no_such_rank(absent[0], sorted(told))
        read = self._read_all([source for rank in dict.fromkeys(wanted) for source in told[rank]])
        if self.failed and not {rank.rank for rank in read}.issuperset(wanted):
            raise left_out.worst(self.failed)
        trace = places.combine(read, given=told)
        return _lowest(trace, len(told)) if ranks == "lowest" else trace

    def _select(self, trace: Trace, ranks: Ranks) -> Trace:
        if ranks is None:
            return trace
        if ranks == "lowest":
            return _lowest(trace, len(trace.ranks))
        return replace(trace, ranks=tuple(trace.rank(number) for number in dict.fromkeys(ranks)))

    def _read_all(self, sources: Sequence[Source]) -> list[RankTrace]:
        read: list[RankTrace] = []
        taken = 0
        for i, source in enumerate(sources):
            self._progress(f"read file {i + 1} of {len(sources)}" if len(sources) > 1 else "read trace")
            try:
                read.append(self._read(source, self._memory_bytes - taken))
                taken += read[-1].tables_bytes
            except left_out.UNREADABLE as error:
                if not source.is_listed:
                    raise
                self.failed.append((source, _alone(error)))
        if not read:
            raise left_out.worst(self.failed)
        return read

    def _read(self, source: Source, memory_bytes: int) -> RankTrace:
        from tracekit.ingest.observed import with_execution_trace

        rank = places.placed(replace(self._decoded(source, memory_bytes), source=source.name))
        if self._stacks and not rank.stacks_recorded:
            rank = replace(rank, warnings=(*rank.warnings, NO_STACKS))
        return self._with_captures(with_execution_trace(rank, source, self._given.observed), source, memory_bytes)

    def _with_captures(self, rank: RankTrace, source: Source, memory_bytes: int) -> RankTrace:
        """With what the captures of its CUDA graphs tell; one that can't be read is left out, with a warning."""
        from tracekit.ingest import captured
        from tracekit.ingest.observed import captures_of

        if not captured.has_replays(rank):
            return rank
        found, warnings = [rank], []
        for capture in captures_of(rank, source, self._given.captures):
            try:
                found.append(self._capture(capture, memory_bytes))
            except TraceError as error:
                warnings.append(f"the capture trace was left out: {error}")
        return captured.join(replace(rank, warnings=(*rank.warnings, *warnings)), found)

    def _capture(self, source: Source, memory_bytes: int) -> RankTrace:
        if source.name not in self._captures:
            self._progress(f"read capture {source.name}")
            trace = self._decoded(source, memory_bytes, needs_gpu=False)
            self._captures[source.name] = replace(trace, source=source.name)
        return self._captures[source.name]

    def _decoded(self, source: Source, memory_bytes: int, needs_gpu: bool = True) -> RankTrace:
        from tracekit.ingest import cache as entries

        if memory_bytes <= 0:
            raise TraceTooLargeError(
                f"{source.name} and the files in front of it need more than {self._memory_bytes / 2**30:.3g} GiB.",
                "Allow more with --memory, or read fewer ranks (--ranks).",
            )
        key = entries.key(source, self._stacks) if self._cache else None
        rank = entries.find(key, memory_bytes) if key else None
        if rank is None:
            rank = _decode(source, memory_bytes, needs_gpu, self._stacks, self._progress)
            if key:
                entries.store(key, rank)
        return rank


def _alone(error: TraceError) -> TraceError:
    """The error without the frames that it went through, which hold a file's buffers."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _told(sources: Sequence[Source]) -> dict[int, list[Source]] | None:
    """The files of each rank without reading all of them; ``None`` if one doesn't tell.

    Two of one rank are no error yet: a folder may hold one that was merged of all ranks, which begins as its first
    does, and only reading it tells that it is none.
    """
    told: dict[int, list[Source]] = defaultdict(list)
    for source in sources:
        recorded = places.of_head(source.head())
        rank = places.of_name(source.name) if recorded is None else recorded
        if rank is None:
            return None
        told[rank].append(source)
    return told


def _lowest(trace: Trace, given: int) -> Trace:
    """The lowest rank, and a word about the others."""
    if given == 1:
        return trace
    chosen = f"rank {trace.ranks[0].rank} of the {given} that were given: --ranks chooses another"
    return replace(trace, ranks=trace.ranks[:1], warnings=(chosen, *trace.warnings))


def _no_such_rank(rank: int, known: Sequence[int]) -> TraceError:
    return TraceError(f"None of the files is of rank {rank}.", f"Given: {places.ranges(known)}.")


def _decode(source: Source, memory_bytes: int, needs_gpu: bool, stacks: bool, progress: Progress) -> RankTrace:
    from tracekit.ingest.decode import decode

    with source.open() as stream:
        try:
            rank = decode(stream, source.name, memory_bytes, needs_gpu=needs_gpu, stacks=stacks, progress=progress)
        except (DamagedTraceError, NotATraceError, NoGpuActivityError) as error:
            if stream.damage is None:
                raise
            message = f"{source.name} is damaged: {stream.damage}."
            raise DamagedTraceError(message, "Copy or record the file again.") from error
        stream.finish()
        return replace(rank, warnings=(stream.damage, *rank.warnings)) if stream.damage else rank
