"""Build the tables of a trace from decoded rows."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec
import polars as pl

from tracekit import schema
from tracekit.arrays import list_distinct, make_nulls
from tracekit.bounds import MAX_METADATA_BYTES
from tracekit.errors import DamagedTraceError, NoGpuActivityError, NotATraceError, TraceError
from tracekit.format import format_quantity
from tracekit.ingest.columns import DecodedFile, FileDamage, argsort_by_start
from tracekit.ingest.correlations import FIRST_ORDERED_ID_KEY, resolve_correlations
from tracekit.ingest.event_decoder import JSON_ERRORS
from tracekit.ingest.fields import ACTIVITY_KINDS, CONTROL_CHARACTERS, TABLES, WORKER_FRAME, WORKER_TABLE
from tracekit.ingest.ledger import EventCounts, build_ledger, is_harmless, share_read, warn_of_dropped
from tracekit.ingest.merged_ranks import RankPart, split_ranks, split_recorded_processes
from tracekit.ingest.ranks import read_rank
from tracekit.ingest.stream_decoder import make_cut_short_error
from tracekit.ingest.table_checks import (
    LAUNCH_CALLS,
    NUMBERED_STEP,
    check_distinct_names,
    drop_malformed_inputs,
    find_device,
    select_whole_steps,
)
from tracekit.messages import Message, traces
from tracekit.messages import traces as messages
from tracekit.messages.traces import (
    CATEGORY_NOT_READ,
    EVENTS_READ,
    IDS_AMBIGUOUS,
    IDS_BY_ORDER,
    IDS_EXTERNAL,
    METADATA_NOT_READ,
    NAMES_CHANGED,
)
from tracekit.system import release_freed_memory
from tracekit.time_base import add_base, find_absolute
from tracekit.trace import PEAK_MEMORY_KEY, RankTrace, TraceDevice

THREADS = schema.THREAD_NAMES.name
STEP_PREFIX = "ProfilerStep#"

# HIP reports the grid of this call in work-items, and of every other call in work-groups.
WORK_ITEM_GRID_CALL = "hipExtModuleLaunchKernel"

# A damaged file is usable only if hardly any kernel is missing.
MAX_KERNELLESS_LAUNCH_FRACTION = 0.02

# Suffix of CUPTI's own call names (cudaLaunchKernel_v7000), which PyTorch removes but other collectors write.
CALL_VERSION_SUFFIX = r"_v\d{4,}$"

# Several times what the largest GPU takes up (a block per clock of each SM): more can't have run in a kernel's time.
MAX_BLOCKS_PER_NS = 1_000
MIN_KERNEL_NS = 1_000
MAX_THREADS_PER_BLOCK = 4_096

CHANGES = {
    messages.OP_INPUTS_MALFORMED: "ops",
    messages.ACTIVITY_SIZES_IMPOSSIBLE: "activities",
    messages.STEP_MARKS_UNNUMBERED: "annotations",
    messages.RANGES_WITHOUT_THREAD: "annotations",
    IDS_AMBIGUOUS: "kernel",
    IDS_BY_ORDER: "kernel",
    IDS_EXTERNAL: "activities",
}
"""Warnings about events that are read but for a part, and the table of these."""

MANY_ROWS = 100_000
"""Decoding fewer rows leaves little freed memory behind, which isn't worth the time of its release."""

# c10's number for it, among the types of devices.
CPU_DEVICE_TYPE = 0

BLANKS_BETWEEN_TEXTS = r'("(?:[^"\\]|\\.)*")|\s+'
"""Blanks of a JSON list: of a text like ``long int``, group 1, they belong to the value."""

USED_KEYS = ("deviceProperties", "distributedInfo")
"""Top-level keys that are used at any length."""


def build_rank_traces(
    decoded: DecodedFile, source: str, labels: Sequence[bytes] = (), *, needs_gpu: bool = True
) -> list[RankTrace]:
    """Build the tables of a decoded trace, each ordered by start; of a merged one for each rank.

    Args:
        decoded: Its rows and top-level keys.
        source: Name of the trace in messages.
        labels: Rank labels of its processes.
        needs_gpu: Whether to refuse a trace without GPU activity.

    Raises:
        NoGpuActivityError: Nothing in it ran on a GPU.
        DamagedTraceError: It is truncated, and kernels are missing.
        NotATraceError: Its time base is absurd, or it merges traces of processes that can't be told apart.
    """
    read = _make_table_reader(decoded, _read_time_base(decoded.keys, source))
    tables = {table: read(table) for table in TABLES} | {THREADS: _build_thread_names(decoded)}
    if decoded.columns.rows > MANY_ROWS:
        release_freed_memory()
    split = split_recorded_processes if decoded.has_processes else split_ranks
    parts = split(tables, decoded.keys, labels, source)
    first, *others = [_build_rank_trace(part, decoded, source, needs_gpu) for part in parts]
    told = () if parts[0].warning is None else (parts[0].warning,)
    ledger = share_read(build_ledger(_count_file(decoded)), first.ledger, [other.ledger for other in others])
    return [replace(first, warnings=(*told, *_describe_damage(decoded), *first.warnings), ledger=ledger), *others]


def _build_rank_trace(part: RankPart, decoded: DecodedFile, source: str, needs_gpu: bool) -> RankTrace:
    take = part.tables.__getitem__
    ops, annotations = take("ops"), take("annotations")
    marks = ops["name"].str.starts_with(STEP_PREFIX)
    if marks.any():
        annotations = _sort_by_start(pl.concat(schema.ANNOTATIONS.conform(t) for t in (annotations, ops.filter(marks))))
        ops = ops.filter(~marks)
    annotations = _add_worker_calls(annotations, take(WORKER_TABLE), take("frames"))
    annotations, lost = _drop_threadless_ranges(annotations)
    ops, unreadable = drop_malformed_inputs(schema.OPS.conform(ops))
    recorded = take("calls").with_columns(pl.col("name").str.replace(CALL_VERSION_SUFFIX, ""))
    launched = pl.concat(_add_constant(take(kind), "kind", kind) for kind in ACTIVITY_KINDS)
    check_distinct_names(launched["name"], source)
    joined = resolve_correlations(recorded, launched)
    calls = _add_launch_geometry(joined.calls)
    activities = _build_activities(calls, joined.activities)
    activities, impossible = _drop_impossible_sizes(activities)
    sizes = pl.col("blocks", "threads_per_block")
    calls = schema.CALLS.conform(calls.with_columns(pl.when(sizes > 0).then(sizes).name.keep()))
    if decoded.damage.cut_at is not None:
        whole = select_whole_steps(annotations, calls, activities)
        if not whole.is_usable:
            raise make_cut_short_error(source, decoded.damage.cut_at)
        annotations, lost = whole.annotations, [*lost, *whole.warnings]
    _check_completeness(decoded.damage, calls, activities, source)
    if activities.is_empty() and needs_gpu:
        raise _make_no_gpu_error(source, ops, calls, decoded)
    device = find_device(part.keys, activities)
    warnings = (
        *joined.messages,
        *impossible,
        *lost,
        *_warn_of_unnumbered_steps(annotations),
        *_describe_missing_data(ops, unreadable, device),
    )
    rank, world_size, misplaced = read_rank(_decode_key(part.keys, "distributedInfo"))
    return RankTrace(
        source=source,
        ops=ops,
        annotations=schema.ANNOTATIONS.conform(annotations),
        calls=calls,
        activities=activities,
        syncs=schema.SYNCS.conform(take("syncs")),
        overheads=schema.OVERHEADS.conform(take("overheads")),
        frames=schema.FRAMES.conform(take("frames")),
        device=device,
        rank=rank,
        world_size=world_size,
        metadata={
            **_read_metadata(part.keys),
            **_find_peak_memory(take("memory"), activities),
            **({} if joined.first_ordered_id is None else {FIRST_ORDERED_ID_KEY: joined.first_ordered_id}),
        },
        warnings=(*warnings, *misplaced),
        ledger=build_ledger(_count_changes(part, warnings, activities.height)),
        thread_names=take(THREADS),
    )


def _add_worker_calls(annotations: pl.DataFrame, *frames: pl.DataFrame) -> pl.DataFrame:
    """Add the calls of a serving engine's worker, which tell its steps, to the named ranges."""
    found = pl.concat(schema.ANNOTATIONS.conform(_select_worker_calls(table)) for table in frames)
    if found.is_empty():
        return annotations
    return _sort_by_start(pl.concat([schema.ANNOTATIONS.conform(annotations), found]))


def _select_worker_calls(frames: pl.DataFrame) -> pl.DataFrame:
    """Select the calls that run a batch, named by their function; they are read without stacks, too."""
    if frames.is_empty():
        return frames
    return frames.with_columns(pl.col("name").str.extract(WORKER_FRAME)).drop_nulls("name")


def _drop_threadless_ranges(annotations: pl.DataFrame) -> tuple[pl.DataFrame, list[Message]]:
    """Drop named ranges whose process or thread isn't a number, where others have both: they can't be placed."""
    if not (annotations["pid"].null_count() or annotations["tid"].null_count()):
        return annotations, []
    placed = annotations["pid"].is_not_null() & annotations["tid"].is_not_null()
    if not placed.any():
        return annotations, []
    return annotations.filter(placed), [messages.RANGES_WITHOUT_THREAD(ranges=int((~placed).sum()))]


_COUNT_FIELDS = ("ranges", "events", "ops", "marks", "ambiguous", "kernels")
"""Values of warnings that say how many events were changed."""


def _count_changes(part: RankPart, warnings: Iterable[Message], activities: int) -> EventCounts:
    """Count what was read of a rank, and what of it was changed or guessed after decoding."""
    counts = EventCounts()
    for name in TABLES:
        if part.tables[name].height:
            counts.add(EVENTS_READ, name, count=part.tables[name].height)
    for warning in warnings:
        if warning.template in CHANGES:
            values = [warning.values[name] for name in _COUNT_FIELDS if name in warning.values]
            counted = values[0] if values and isinstance(values[0], int) else activities
            counts.add(warning.template, CHANGES[warning.template], count=counted)
    return counts


def _count_file(decoded: DecodedFile) -> EventCounts:
    """Add to the counts of a file what of it isn't an event."""
    counts, damage = decoded.columns.counts, decoded.damage
    if damage.cut_at is not None:
        counts.add(messages.EVENTS_CUT, at_byte=damage.cut_at, count=0)
    if damage.followed_at is not None:
        counts.add(messages.DATA_BEHIND_TRACE, at_byte=damage.followed_at, count=damage.followed_bytes)
    if damage.has_lost_metadata:
        counts.add(messages.METADATA_LOST, at_byte=damage.at_byte)
    for key, value in decoded.keys.items():
        if len(value) > MAX_METADATA_BYTES and key not in USED_KEYS:
            counts.add(METADATA_NOT_READ, key)
    return counts


def _find_peak_memory(events: pl.DataFrame, activities: pl.DataFrame) -> dict[str, dict[str, int]]:
    """Return the peak GPU memory of PyTorch's allocator (``profile_memory=True``); empty without it."""
    if events.is_empty():
        return {}
    device = activities["device"].drop_nulls().mode()
    own = events.filter((pl.col("device_type") != CPU_DEVICE_TYPE) & pl.col("device_id").is_in(device.implode()))
    peaks = own.select(pl.col("allocated_bytes", "reserved_bytes").max()).row(0)
    names = ("peak_allocated_bytes", "peak_reserved_bytes")
    known = {name: peak for name, peak in zip(names, peaks, strict=True) if peak is not None}
    return {PEAK_MEMORY_KEY: known} if known else {}


def _make_table_reader(decoded: DecodedFile, base_ns: int) -> Callable[[str], pl.DataFrame]:
    """Return a function that builds the frame of a table, with absolute times."""
    texts = pl.Series("text", [word.decode("utf-8", errors="replace") for word in decoded.words], dtype=pl.String)
    words = texts.str.replace_all(CONTROL_CHARACTERS, "\N{REPLACEMENT CHARACTER}")
    changed = int((words != texts).sum())
    if changed:
        decoded.columns.counts.add(NAMES_CHANGED, count=changed)
    text = pl.col("text").str
    lists = text.replace_all(BLANKS_BETWEEN_TEXTS, "$1")
    texts_alone = text.replace_all(r"\s+", "").str.replace(r'^"(.*)"$', "$1")
    values = pl.when(text.starts_with('"')).then(texts_alone).otherwise(lists)
    compact = words.to_frame().select(pl.when(~values.is_in(["[]", ""])).then(values)).to_series()
    decoded.words.clear()

    def read(table: str) -> pl.DataFrame:
        found = decoded.columns.take_table(table, words, compact)
        if found.is_empty():
            return found
        absolute = int(find_absolute(found["ts_ns"], base_ns).sum())
        if absolute:
            decoded.columns.counts.add(messages.TIMES_ABSOLUTE, table, count=absolute)
        found.replace_column(found.get_column_index("ts_ns"), add_base(found["ts_ns"], base_ns))
        lengths = pl.Series("dur_ns", found["dur_ns"].to_numpy().clip(0))
        return found.replace_column(found.get_column_index("dur_ns"), lengths)

    return read


def _build_thread_names(decoded: DecodedFile) -> pl.DataFrame:
    """Build the table of thread names (``schema.THREAD_NAMES``)."""
    threads = decoded.columns.thread_names
    names = [re.sub(CONTROL_CHARACTERS, "\N{REPLACEMENT CHARACTER}", name) for name in threads.values()]
    return schema.THREAD_NAMES.build_frame(
        {"pid": [pid for pid, _ in threads], "tid": [tid for _, tid in threads], "name": names}
    )


def _read_time_base(keys: Mapping[str, bytes], source: str) -> int:
    base = _decode_key(keys, "baseTimeNanoseconds")
    if base is None:
        return 0
    if not isinstance(base, int) or not 0 <= base < 2**62:
        raise NotATraceError(messages.TIME_BASE_ABSURD(path=source, base=repr(base)))
    return base


def _make_no_gpu_error(source: str, ops: pl.DataFrame, calls: pl.DataFrame, decoded: DecodedFile) -> TraceError:
    counts = decoded.columns.counts
    if decoded.damage.lost_events and (decoded.damage.lost_activities or ops.is_empty()):
        return _make_unreadable_error(source, decoded.damage)
    untimed = counts.count(messages.EVENTS_UNTIMED)
    kernels = any(one.category in ACTIVITY_KINDS for one in counts.select(messages.EVENTS_UNTIMED))
    if kernels or (untimed and ops.is_empty()):
        return NoGpuActivityError(messages.EVENTS_WITHOUT_TIMES(path=source, events=untimed))
    devices = [one for one in counts.select(CATEGORY_NOT_READ) if not is_harmless(one)]
    if devices:
        named = [format_quantity(one.count, f"{one.category or 'unnamed'} event") for one in devices]
        return NoGpuActivityError(messages.TRACE_OF_OTHER_DEVICE(path=source, categories=named))
    launches = calls.filter(pl.col("name").str.contains(LAUNCH_CALLS)).height
    if launches:
        return NoGpuActivityError(messages.ALL_KERNELS_LOST(path=source, launches=launches))
    if ops.is_empty():
        return NoGpuActivityError(messages.TRACE_EMPTY(path=source))
    return NoGpuActivityError(messages.TRACE_WITHOUT_GPU(path=source, ops=ops.height))


def _make_unreadable_error(source: str, damage: FileDamage) -> DamagedTraceError:
    """Make the error for a file whose events can't be read, with their number and the place of the first."""
    lost, events, offset = damage.lost_events, damage.events, damage.at_byte
    if damage.comma_number is not None:
        message = traces.NUMBERS_WITH_COMMAS(
            path=source, lost=lost, events=events, offset=offset, example=damage.comma_number
        )
        return DamagedTraceError(message)
    return DamagedTraceError(traces.EVENTS_UNREADABLE(path=source, lost=lost, events=events, offset=offset))


def _check_completeness(damage: FileDamage, calls: pl.DataFrame, activities: pl.DataFrame, source: str) -> None:
    """Refuse a file that lost many kernels, as the remaining ones would look faster than the job."""
    if not damage.lost_activities:
        return
    launches = calls.filter(pl.col("name").str.contains(LAUNCH_CALLS))["correlation"].drop_nulls()
    missing = (~launches.is_in(activities["correlation"].implode())).sum()
    most = MAX_KERNELLESS_LAUNCH_FRACTION * len(launches)
    if min(missing, damage.lost_activities) > max(most, 1):
        if damage.comma_number is not None:
            raise _make_unreadable_error(source, damage)
        raise DamagedTraceError(
            messages.LAUNCHES_WITHOUT_KERNELS(
                path=source,
                missing=int(missing),
                launches=len(launches),
                lost=damage.lost_events,
                offset=damage.at_byte,
            )
        )


def _build_activities(calls: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    blocks, threads = _multiply_elements(activities["grid"]), _multiply_elements(activities["block"])
    in_grid = blocks
    table = activities.with_columns(
        device=pl.coalesce("device", "pid"),
        stream=pl.coalesce("stream", "tid"),
        bytes=pl.coalesce("bytes", "size"),
        blocks=blocks,
        threads_per_block=threads,
    )
    if calls["grid"].count():
        launches = calls.filter(pl.col("grid").is_not_null()).unique("correlation", keep="last")
        geometry = launches.select(
            "correlation", call_blocks="blocks", call_threads="threads_per_block", call_grid="grid", call_block="block"
        )
        table = table.join(geometry, on="correlation", how="left", maintain_order="left").with_columns(
            blocks=pl.coalesce("call_blocks", "blocks"),
            threads_per_block=pl.coalesce("call_threads", "threads_per_block"),
            grid=pl.coalesce("call_grid", "grid"),
            block=pl.coalesce("call_block", "block"),
        )
        in_grid = _multiply_elements(table["grid"])
    return _sort_by_start(schema.ACTIVITIES.conform(_keep_grids(table, table["blocks"] == in_grid)))


def _keep_grids(table: pl.DataFrame, kept: pl.Series) -> pl.DataFrame:
    """Keep some grids, and drop the others."""
    grid = table["grid"]
    return table.clone().replace_column(
        table.columns.index("grid"), grid.zip_with(kept, make_nulls("", len(grid), grid.dtype))
    )


def _drop_impossible_sizes(activities: pl.DataFrame) -> tuple[pl.DataFrame, list[Message]]:
    """Drop block counts, thread counts and sizes that no activity can have; return a warning for each kind."""
    most_blocks = pl.col("dur_ns").clip(MIN_KERNEL_NS) * MAX_BLOCKS_PER_NS
    right = {
        "blocks": pl.col("blocks").is_between(1, most_blocks),
        "threads_per_block": pl.col("threads_per_block").is_between(1, MAX_THREADS_PER_BLOCK),
        **{name: pl.col(name) >= 0 for name in ("bytes", "registers_per_thread", "shared_memory_bytes")},
    }
    wrong = activities.select((~is_right).sum().alias(name) for name, is_right in right.items()).row(0, named=True)
    warnings = [
        messages.ACTIVITY_SIZES_IMPOSSIBLE(column=name.replace("_", " "), events=count)
        for name, count in wrong.items()
        if count
    ]
    if not warnings:
        return activities, []
    return activities.with_columns(pl.when(is_right).then(name) for name, is_right in right.items()), warnings


def _add_launch_geometry(calls: pl.DataFrame) -> pl.DataFrame:
    """Add blocks and threads per block to calls, for dialects (ROCm) that record them on the call.

    Kineto copies the call's grid to its kernel unchanged. Only the call's grid counts, as only the call's name shows
    its unit.
    """
    table = _add_columns(
        calls, blocks=_multiply_elements(calls["grid"]), threads_per_block=_multiply_elements(calls["block"])
    )
    if not table["blocks"].count():
        return table
    per_group = pl.when(pl.col("name") == WORK_ITEM_GRID_CALL).then(pl.col("threads_per_block").clip(1)).otherwise(1)
    return table.with_columns(blocks=-(-pl.col("blocks") // pl.coalesce(per_group, 1)))


def _multiply_elements(vectors: pl.Series) -> pl.Series:
    """Of each vector's elements: ``[8,2,1]`` is 16. -1 where one is negative, or the product has no end."""
    if not vectors.count():
        return make_nulls(vectors.name, len(vectors))
    known = {text: _multiply_vector(text) for text in list_distinct(vectors)}
    return vectors.replace_strict(known, default=None, return_dtype=pl.Int64)


def _multiply_vector(text: str) -> int | None:
    try:
        numbers = [int(number) for number in msgspec.json.decode(text.encode())]
    except (*JSON_ERRORS, TypeError, ValueError, OverflowError):
        return None
    value = math.prod(number or 1 for number in numbers)
    return value if min(numbers, default=0) >= 0 and value < 2**63 else -1


def _add_columns(frame: pl.DataFrame, **columns: pl.Series) -> pl.DataFrame:
    """Add columns behind the others."""
    return frame.hstack([column.alias(name) for name, column in columns.items()])


def _add_constant(frame: pl.DataFrame, name: str, value: str) -> pl.DataFrame:
    return _add_columns(frame, **{name: pl.Series([value]).new_from_index(0, frame.height)})


def _sort_by_start(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by start. Columns without values aren't moved: nulls that were never written take no memory."""
    if not frame.height:
        return frame
    order = argsort_by_start(frame["ts_ns"].to_numpy(), frame["dur_ns"].to_numpy(), lambda rows: frame[rows])
    return pl.DataFrame(
        [
            each[order] if each.count() else make_nulls(each.name, frame.height, each.dtype)
            for each in frame.get_columns()
        ]
    )


def _decode_key(keys: Mapping[str, bytes], key: str) -> object:
    """Decode a top-level value; ``None`` if it is missing or invalid JSON."""
    try:
        return msgspec.json.decode(keys[key]) if key in keys else None
    except JSON_ERRORS:
        return None


def _read_metadata(keys: Mapping[str, bytes]) -> dict[str, object]:
    return {key: _decode_key(keys, key) for key, value in keys.items() if len(value) <= MAX_METADATA_BYTES}


def _describe_damage(decoded: DecodedFile) -> Iterable[Message]:
    damage = decoded.damage
    if damage.lost_events:
        yield messages.EVENTS_LOST(lost=damage.lost_events, events=damage.events, offset=damage.at_byte)
    if damage.repaired_events:
        yield messages.EVENTS_REPAIRED(repaired=damage.repaired_events, events=damage.events)
    if damage.cut_at is not None:
        yield messages.EVENTS_CUT(length=damage.cut_at)
    if damage.followed_at is not None:
        yield messages.DATA_BEHIND_TRACE(offset=damage.followed_at)
    if damage.has_lost_metadata:
        yield messages.METADATA_LOST()
    for template in (
        messages.EVENTS_UNTIMED,
        messages.EVENTS_DISTANT,
        messages.EVENTS_BACKWARD,
        messages.TIMES_ABSOLUTE,
    ):
        events = decoded.columns.counts.count(template)
        if events:
            yield template(events=events)
    yield from warn_of_dropped(decoded.columns.counts)


def _warn_of_unnumbered_steps(annotations: pl.DataFrame) -> Iterable[Message]:
    names = annotations["name"]
    if names.is_empty():
        return
    wrong = names.filter(names.str.starts_with(STEP_PREFIX) & ~names.str.contains(NUMBERED_STEP))
    if not wrong.is_empty():
        yield messages.STEP_MARKS_UNNUMBERED(marks=len(wrong))


def _describe_missing_data(ops: pl.DataFrame, unreadable: int, device: TraceDevice | None) -> Iterable[Message]:
    if unreadable:
        yield messages.OP_INPUTS_MALFORMED(ops=unreadable)
    if device is None:
        yield messages.DEVICE_NOT_RECORDED()
    if ops.is_empty():
        yield messages.OPS_NOT_RECORDED()
    elif ops["input_dims"].count() == 0:
        yield messages.SHAPES_NOT_RECORDED()
