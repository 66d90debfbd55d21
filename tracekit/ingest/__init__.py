"""Read trace files into a :class:`~tracekit.trace.Trace`."""

import io
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Literal

from tracekit.bounds import MAX_FILES, MAX_MODEL_CONFIG_BYTES, MAX_TRACES
from tracekit.errors import (
    DamagedTraceError,
    ModelConfigError,
    NoGpuActivityError,
    NotATraceError,
    TraceError,
    TracekitError,
    TraceTooLargeError,
)
from tracekit.ingest.ranks import (
    abbreviate_ranks,
    assign_rank,
    combine_ranks,
    parse_rank_from_head,
    parse_rank_from_name,
)
from tracekit.ingest.source import ExpandedInputs, Inputs, TraceSource, expand_inputs
from tracekit.messages import Message, ProgressCallback, Template, requests, traces
from tracekit.messages.models import CONFIG_NOT_UNIQUE, CONFIG_SKIPPED
from tracekit.messages.traces import (
    CAPTURE_SKIPPED,
    FILES_BESIDE_UNREADABLE,
    FILES_DAMAGED,
    FILES_NOT_TRACES,
    FILES_OF_OTHER_KIND,
    FILES_WITHOUT_GPU,
    MEMORY_SIZE_INVALID,
)
from tracekit.models.llm import ModelConfig, parse_model_config
from tracekit.numbers import NUMBER_PATTERN
from tracekit.system import find_memory_bytes
from tracekit.trace import RankTrace, Trace

__all__ = ["Inputs", "Ranks", "load", "load_bytes", "load_rank", "strip_traceback"]

Ranks = Sequence[int] | Literal["lowest"] | None

SKIPPABLE_ERRORS = (DamagedTraceError, NotATraceError, NoGpuActivityError)
"""Errors of a file that do not affect the other files."""

MAX_NAMED_FILES = 3
"""Number of files named in a warning; of further ones only the count is given."""

_WARNINGS = {
    DamagedTraceError: FILES_DAMAGED,
    NoGpuActivityError: FILES_WITHOUT_GPU,
    NotATraceError: FILES_OF_OTHER_KIND,
}
_SIZE_PATTERN = re.compile(rf"\s*({NUMBER_PATTERN})\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE | re.ASCII)
_UNIT_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def load(
    inputs: Inputs,
    *,
    ranks: Ranks = None,
    cache: bool = True,
    memory: str | int | None = None,
    stacks: bool = False,
    progress: ProgressCallback = lambda stage: None,
    needs_gpu: bool = True,
) -> Trace:
    """Read the PyTorch profiler traces of one job, a file per rank.

    Args:
        inputs: A file (``.json``, gzip, zstd or zip), a directory, a glob, a URI, ``-`` for standard input, or several
            of them. The model's ``config.json`` may be among them.
        ranks: The ranks to read, or ``"lowest"`` for the lowest one only; all by default.
        cache: Whether to read decoded files from the cache on this machine, and to store them there.
        memory: Memory limit of the tables, such as ``"2G"``; by default half of the machine's memory.
        stacks: Whether to read Python calls, for modules and Python lines of kernels.
        progress: Called with a description of the current stage.
        needs_gpu: Whether to refuse a trace without GPU activity.

    Raises:
        ModelConfigError: A model's ``config.json`` is among the inputs, and describes layers that aren't known.
        TraceError: A file is missing, damaged, not a profiler trace, or holds no GPU activity; a rank is missing, given
            twice, or unknown.
        TracekitError: ``memory`` is not a size.
    """
    given = expand_inputs(inputs)
    model, doubts = read_given_config(given.model_configs)
    loader = _TraceLoader(given, cache and needs_gpu, parse_memory_size(memory), stacks, progress, needs_gpu)
    trace = loader.load(given.traces, ranks)
    return replace(
        trace,
        ranks=tuple(replace(rank, model=model) for rank in trace.ranks) if model else trace.ranks,
        warnings=(
            *given.doubts,
            *doubts,
            *loader.doubts,
            *build_skip_warnings(loader.failed, given.others),
            *trace.warnings,
        ),
    )


def load_rank(
    source: TraceSource, given: ExpandedInputs, *, cache: bool, memory_bytes: int, stacks: bool = False
) -> RankTrace:
    """Read the trace of one rank of a job, with what was given for all of them.

    Raises:
        TraceError: As for :func:`load`; or the file holds several ranks.
    """
    model, _ = read_given_config(given.model_configs)
    listed = replace(source, is_listed=True)
    loader = _TraceLoader(given, cache, memory_bytes, stacks=stacks, progress=lambda stage: None, needs_gpu=True)
    (rank,) = loader.read_source(listed, memory_bytes, is_alone=False)
    return replace(rank, model=model) if model else rank


def load_bytes(data: bytes, source: str, *, stacks: bool = False) -> Trace:
    """Read a trace that is already in memory, uncompressed.

    Args:
        data: The JSON text.
        source: Name of the trace in messages.
        stacks: Whether to read Python calls.

    Raises:
        TraceError: As for :func:`load`.
    """
    from tracekit.ingest.decode import decode_ranks

    ranks = decode_ranks(io.BytesIO(data), source, stacks=stacks)
    return combine_ranks([assign_rank(rank) for rank in ranks])


class _TraceLoader:
    """Reads files one by one; together their tables stay within the memory limit.

    Unreadable files of a directory, glob or archive are skipped and listed in ``failed``; ``doubts`` says
    what is wrong with the cache.
    """

    def __init__(
        self,
        given: ExpandedInputs,
        cache: bool,
        memory_bytes: int,
        stacks: bool,
        progress: ProgressCallback,
        needs_gpu: bool,
    ) -> None:
        self.failed: list[tuple[TraceSource, TraceError]] = []
        self.doubts: tuple[Message, ...] = ()
        self._given = given
        self._captures: dict[str, RankTrace] = {}
        self._cache = cache
        self._memory_bytes = memory_bytes
        self._stacks = stacks
        self._needs_gpu = needs_gpu
        self._progress = progress

    def load(self, sources: Sequence[TraceSource], ranks: Ranks) -> Trace:
        told = _group_by_rank(sources) if ranks is not None and len(sources) > 1 else None
        if told is None:
            return self._select_ranks(combine_ranks(self._read_all(sources)), ranks)
        wanted = [min(told)] if ranks == "lowest" else list(ranks or told)
        absent = [rank for rank in wanted if rank not in told]
        if absent:
            raise _make_missing_rank_error(absent[0], sorted(told))
        read = self._read_all([source for rank in dict.fromkeys(wanted) for source in told[rank]])
        if self.failed and not {rank.rank for rank in read}.issuperset(wanted):
            raise choose_error(self.failed)
        trace = combine_ranks(read, given=told)
        return _select_lowest_rank(trace, len(told)) if ranks == "lowest" else trace

    def _select_ranks(self, trace: Trace, ranks: Ranks) -> Trace:
        if ranks is None:
            return trace
        if ranks == "lowest":
            return _select_lowest_rank(trace, len(trace.ranks))
        return replace(trace, ranks=tuple(trace.rank(number) for number in dict.fromkeys(ranks)))

    def _read_all(self, sources: Sequence[TraceSource]) -> list[RankTrace]:
        if len(sources) > MAX_FILES:
            raise _make_too_many_error(len(sources), MAX_FILES)
        read: list[RankTrace] = []
        taken = 0
        for i, source in enumerate(sources):
            several = len(sources) > 1
            self._progress(
                requests.READING_FILE(number=i + 1, files=len(sources)) if several else requests.READING_TRACE()
            )
            try:
                found = self.read_source(source, self._memory_bytes - taken, is_alone=len(sources) == 1)
                read += found
                taken += sum(rank.tables_bytes for rank in found)
                if len(read) > MAX_TRACES:
                    raise _make_too_many_error(len(sources), MAX_TRACES)
            except SKIPPABLE_ERRORS as error:
                if not source.is_listed:
                    raise
                self.failed.append((source, strip_traceback(error)))
        if not read:
            raise choose_error(self.failed)
        return read

    def read_source(self, source: TraceSource, memory_bytes: int, is_alone: bool) -> list[RankTrace]:
        """Read a file's rank, or several; a merged file that lies beside others is refused: they may be its parts."""
        ranks = self._load_decoded(source, memory_bytes, self._needs_gpu)
        if len(ranks) > 1 and source.is_listed and not is_alone:
            raise NotATraceError(traces.TRACES_MERGED(path=source.name, processes=len(ranks)))
        return [self._add_companions(rank, source, memory_bytes) for rank in ranks]

    def _add_companions(self, rank: RankTrace, source: TraceSource, memory_bytes: int) -> RankTrace:
        from tracekit.ingest.companions import add_execution_trace

        rank = assign_rank(replace(rank, source=source.name))
        if self._stacks and not rank.has_stacks:
            rank = replace(rank, warnings=(*rank.warnings, traces.STACKS_NOT_RECORDED()))
        return self._join_captures(
            add_execution_trace(rank, source, self._given.execution_traces), source, memory_bytes
        )

    def _join_captures(self, rank: RankTrace, source: TraceSource, memory_bytes: int) -> RankTrace:
        """Join the captures of the rank's CUDA graphs; an unreadable capture is skipped with a warning."""
        from tracekit.ingest import cuda_graph_captures
        from tracekit.ingest.companions import find_capture_files

        if not cuda_graph_captures.has_replays(rank):
            return rank
        found, warnings = [rank], []
        for capture in find_capture_files(rank, source, self._given.captures):
            try:
                found.append(self._read_capture(capture, memory_bytes))
            except TraceError as error:
                warnings.append(CAPTURE_SKIPPED(error=error.catalogue_message))
        return cuda_graph_captures.join_captures(replace(rank, warnings=(*rank.warnings, *warnings)), found)

    def _read_capture(self, source: TraceSource, memory_bytes: int) -> RankTrace:
        if source.name not in self._captures:
            self._progress(requests.READING_CAPTURE(name=source.name))
            trace, *_ = self._load_decoded(source, memory_bytes, needs_gpu=False)
            self._captures[source.name] = replace(trace, source=source.name)
        return self._captures[source.name]

    def _load_decoded(self, source: TraceSource, memory_bytes: int, needs_gpu: bool = True) -> list[RankTrace]:
        from tracekit.ingest import cache as entries

        if memory_bytes <= 0:
            raise TraceTooLargeError(traces.TRACES_TOO_LARGE(path=source.name, limit_bytes=self._memory_bytes))
        key = entries.compute_key(source, self._stacks) if self._cache else None
        if key and (public := entries.find_public()):
            self._cache, key = False, None
            self.doubts = (traces.CACHE_NOT_PRIVATE(path=str(public)),)
        cached = entries.load_entry(key, memory_bytes) if key else None
        if cached is not None:
            return [cached]
        ranks = _decode_source(source, memory_bytes, needs_gpu, self._stacks, self._progress)
        if key and len(ranks) == 1:
            entries.store_entry(key, ranks[0])
        return ranks


def strip_traceback(error: TraceError) -> TraceError:
    """Return the error without its traceback, whose frames hold the file's buffers."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _group_by_rank(sources: Sequence[TraceSource]) -> dict[int, list[TraceSource]] | None:
    """Group the files by rank without reading them whole; ``None`` if the rank of one is unknown.

    Two files of one rank are no error yet: a folder may hold a file merged from all ranks. It begins like the first
    rank's file, and only reading it shows that it is not a trace of one rank.
    """
    told: dict[int, list[TraceSource]] = defaultdict(list)
    for source in sources:
        recorded = parse_rank_from_head(source.read_head())
        rank = parse_rank_from_name(source.name) if recorded is None else recorded
        if rank is None:
            return None
        told[rank].append(source)
    return told


def _select_lowest_rank(trace: Trace, given: int) -> Trace:
    """Select the lowest rank, and warn about the others."""
    if given == 1:
        return trace
    chosen = traces.RANK_CHOSEN(rank=trace.ranks[0].rank, given=given)
    return replace(trace, ranks=trace.ranks[:1], warnings=(chosen, *trace.warnings))


def _make_too_many_error(files: int, limit: int) -> TraceTooLargeError:
    return TraceTooLargeError(traces.FILES_TOO_MANY_TO_READ(files=files, max_files=limit))


def _make_missing_rank_error(rank: int, known: Sequence[int]) -> TraceError:
    return TraceError(traces.RANK_NOT_GIVEN(rank=rank, given=abbreviate_ranks(known)))


def _decode_source(
    source: TraceSource, memory_bytes: int, needs_gpu: bool, stacks: bool, progress: ProgressCallback
) -> list[RankTrace]:
    from tracekit.ingest import formats
    from tracekit.ingest.decode import decode_ranks
    from tracekit.ingest.formats.tables import ForeignFile

    if source.path is not None and source.path.is_dir():
        return formats.read_path(
            formats.NSIGHT, ForeignFile(source.path, source.name, memory_bytes), needs_gpu=needs_gpu
        )
    with source.open() as stream:
        try:
            first, *others = decode_ranks(
                stream, source.name, memory_bytes, needs_gpu=needs_gpu, stacks=stacks, progress=progress
            )
        except (DamagedTraceError, NotATraceError, NoGpuActivityError) as error:
            if stream.damage is None:
                raise
            message = traces.FILE_DAMAGED(path=source.name, damage=stream.damage)
            raise DamagedTraceError(message) from error
        stream.finish()
    return [replace(first, warnings=(stream.damage, *first.warnings)) if stream.damage else first, *others]


def parse_memory_size(memory: str | int | None) -> int:
    """Convert a size such as ``"2G"`` (units are powers of 1024) to bytes; by default half of the memory.

    Raises:
        TracekitError: It is not a size.
    """
    if memory is None:
        return find_memory_bytes() // 2
    found = _SIZE_PATTERN.fullmatch(str(memory))
    size = int(float(found.group(1)) * 2 ** _UNIT_POWERS[found.group(2).lower()]) if found else 0
    if size <= 0:
        raise TracekitError(MEMORY_SIZE_INVALID(size=str(memory)))
    return size


def read_given_config(given: Sequence[TraceSource]) -> tuple[ModelConfig | None, tuple[Message, ...]]:
    """Read the model's configuration; one that a directory, glob or archive holds is left out if it isn't understood.

    Returns:
        The model, None without one, and a warning if one was left out.

    Raises:
        ModelConfigError: Several were given, or the one that was named isn't understood.
    """
    if not given:
        return None, ()
    try:
        if len(given) > 1:
            raise ModelConfigError(CONFIG_NOT_UNIQUE(paths=[source.name for source in given]))
        return parse_model_config(_read_text(given[0]), given[0].name), ()
    except ModelConfigError as error:
        if not given[0].is_listed:
            raise
        return None, (CONFIG_SKIPPED(error=error.catalogue_message),)


def _read_text(source: TraceSource) -> bytes:
    with source.open() as stream:
        return stream.read(MAX_MODEL_CONFIG_BYTES + 1)


def build_skip_warnings(
    failed: Sequence[tuple[TraceSource, TraceError]], others: Sequence[TraceSource]
) -> Iterator[Message]:
    """Build one warning for each reason to skip files."""
    by_reason: dict[Template, list[TraceSource]] = defaultdict(list)
    for source, error in failed:
        by_reason[_WARNINGS[next(kind for kind in SKIPPABLE_ERRORS if isinstance(error, kind))]].append(source)
    by_reason[FILES_NOT_TRACES].extend(others)
    for template, sources in by_reason.items():
        if sources:
            yield template(files=len(sources), names=_format_names(sources))


def choose_error(failed: Sequence[tuple[TraceSource, TraceError]]) -> TraceError:
    """Choose the error to raise if no file could be read: that of a trace before that of another file."""
    errors = [error for _, error in failed]
    said = next((error for error in errors if not isinstance(error, NotATraceError)), errors[0])
    others = len(errors) - 1
    if not others:
        return said
    return type(said)(FILES_BESIDE_UNREADABLE(error=said.catalogue_message, others=others))


def _format_names(sources: Sequence[TraceSource]) -> str:
    names = ", ".join(PurePath(source.name).name for source in sources[:MAX_NAMED_FILES])
    more = len(sources) - MAX_NAMED_FILES
    return f"{names} and {more:,} more" if more > 0 else names
