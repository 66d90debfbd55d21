"""Check the tables of a trace, and complete them, before anything is inferred from them.

Inputs of ops in another format than the profiler's are dropped, names that later stages classify one by one are
limited, figures that no GPU has are left out, and of a file that ends too early the whole steps are told.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from tracekit.arrays import list_distinct
from tracekit.bounds import MAX_DISTINCT_NAMES, MAX_OP_ELEMENTS
from tracekit.errors import TraceTooLargeError
from tracekit.ingest.correlations import KERNEL_LAUNCHES
from tracekit.ingest.event_decoder import JSON_ERRORS
from tracekit.ingest.fields import CONTROL_CHARACTERS
from tracekit.messages import Message, traces
from tracekit.messages.traces import NAMES_TOO_MANY
from tracekit.schema import OP_INPUT_COLUMNS
from tracekit.trace import TraceDevice


def drop_malformed_inputs(ops: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Drop inputs that are not lists as the profiler writes them, and count the ops that lost theirs."""
    malformed = {name: _find_malformed(ops[name], form) for name, form in INPUT_CHECKS.items()}
    if not any(malformed.values()):
        return ops, 0
    bad = pl.any_horizontal(pl.col(name).is_in(texts) for name, texts in malformed.items())
    bad = bad.fill_null(value=False)
    count = int(ops.select(bad.sum()).item())
    return ops.with_columns(pl.when(~bad).then(pl.col(name)).alias(name) for name in INPUT_CHECKS), count


def _find_malformed(texts: pl.Series, form: Callable[[Any], bool]) -> list[str]:
    return [text for text in list_distinct(texts) if not _has_form(text, form)]


def _has_form(text: str, form: Callable[[Any], bool]) -> bool:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, list) and all(map(form, values))


def _is_shape(value: Any) -> bool:
    """Return whether the value is a shape that some machine could hold, or a list of such shapes (tensor list)."""
    return _is_nested(value, _are_sizes)


def _is_stride(value: Any) -> bool:
    """Return whether the value is a list of integers, or a list of such lists (tensor list)."""
    return _is_nested(value, _are_whole)


def _is_nested(value: Any, form: Callable[[list[Any]], bool]) -> bool:
    return isinstance(value, list) and (form(value) or all(isinstance(part, list) and form(part) for part in value))


def _are_sizes(values: list[Any]) -> bool:
    return (
        _are_whole(values) and min(values, default=0) >= 0 and prod(max(size, 1) for size in values) < MAX_OP_ELEMENTS
    )


def _are_whole(values: list[Any]) -> bool:
    return all(type(value) is int for value in values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


INPUT_CHECKS: dict[str, Callable[[Any], bool]] = dict(
    zip((column.name for column in OP_INPUT_COLUMNS), (_is_shape, _is_text, _is_stride, _is_text), strict=True)
)
"""Check of each input column: shapes, types, strides, and values as text."""


def check_distinct_names(names: pl.Series, source: str) -> None:
    """Refuse more different names than any job's kernels have.

    Args:
        names: Name of each kernel, copy and memset.
        source: Name of the trace in messages.

    Raises:
        TraceTooLargeError: There are more.
    """
    distinct = names.n_unique()
    if distinct > MAX_DISTINCT_NAMES:
        raise TraceTooLargeError(NAMES_TOO_MANY(path=source, names=distinct, max_names=MAX_DISTINCT_NAMES))


MAX_SMS = 1_000
"""Three times the largest count, 304 of an MI300X. Some collectors write the bytes of shared memory there."""
MAX_MEMORY_BYTES = 1 << 44
"""Sixty times the memory of the largest GPU."""
MAX_COMPUTE_CAPABILITY = 99
"""Several times the largest major or minor number."""


class DeviceProperties(msgspec.Struct, rename="camel"):
    """An entry of ``deviceProperties``."""

    id: int = 0
    name: str = ""
    num_sms: int = 0
    total_global_mem: int = 0
    compute_major: int | None = None
    compute_minor: int | None = None


def find_device(keys: Mapping[str, bytes], activities: pl.DataFrame) -> TraceDevice | None:
    """Return the device that most activities ran on, as described by deviceProperties.

    Where ordinals are remapped (containers), the list may lack the activities' ordinal. Then any entry is used if all
    entries describe the same GPU.
    """
    try:
        devices = msgspec.json.decode(keys.get("deviceProperties", b"[]"), type=list[DeviceProperties] | None) or []
    except JSON_ERRORS:
        return None
    used = next((device for device, _ in Counter(activities["device"].to_list()).most_common(1)), None)
    found = next((device for device in devices if device.id == used), None)
    if found is None and len({(device.name, device.num_sms) for device in devices}) == 1:
        found = devices[0]
    if found is None:
        return None
    major, minor = (_keep_possible(of, MAX_COMPUTE_CAPABILITY) for of in (found.compute_major, found.compute_minor))
    return TraceDevice(
        name=re.sub(CONTROL_CHARACTERS, "\N{REPLACEMENT CHARACTER}", found.name),
        sms=_keep_possible(found.num_sms, MAX_SMS) or 0,
        memory_bytes=_keep_possible(found.total_global_mem, MAX_MEMORY_BYTES) or 0,
        compute_capability=None if major is None or minor is None else f"{major}.{minor}",
    )


def _keep_possible(number: int | None, largest: int) -> int | None:
    """Return a number unless no GPU has it."""
    return number if number is not None and 0 <= number <= largest else None


NUMBERED_STEP = r"^ProfilerStep#([0-9]{1,18})(?:[^0-9]|$)"
LAUNCH_CALLS = f"{KERNEL_LAUNCHES}|GraphLaunch"
MAX_MISSING_FRACTION = 0.02
"""Largest part of the launches whose kernels may be missing, of the kernels whose launches may be, and of the launches
by which a step may have fewer than those before it. Complete traces lack the kernels of up to about 1 %."""

MAX_SILENT_FRACTION = 0.1
"""Largest part of a step, at its end, in which nothing may be recorded any more in all of the file."""


class WholeSteps(NamedTuple):
    """What of a file that ends too early can be measured.

    Attributes:
        annotations: Named ranges without the marks of the steps that it cut.
        warnings: Which steps were left out.
        is_usable: Whether the steps left are whole; without marks, whether hardly any kernel or launch is missing.
    """

    annotations: pl.DataFrame
    warnings: tuple[Message, ...]
    is_usable: bool


def select_whole_steps(annotations: pl.DataFrame, calls: pl.DataFrame, activities: pl.DataFrame) -> WholeSteps:
    """Leave out the marks of the steps in which launches or kernels are missing.

    Some profilers write events by time, so that the last step lacks launches with their kernels; others all calls
    before all kernels, so that launches lack their kernels.
    """
    launches = calls.filter(pl.col("name").str.contains(LAUNCH_CALLS)).select(
        "ts_ns",
        # A launch without an id may have its kernel.
        lacks=~pl.col("correlation").is_in(activities["correlation"].drop_nulls().implode()).fill_null(value=True),
    )
    called = activities["correlation"].is_in(calls["correlation"].drop_nulls().implode()).fill_null(value=False)
    orphans = activities.select("ts_ns", lacks=~called.cast(pl.Boolean))
    marks = annotations.with_row_index("mark").with_columns(step=pl.col("name").str.extract(NUMBERED_STEP))
    if marks["step"].is_null().all():
        return WholeSteps(annotations, (), _has_nearly_all(launches["lacks"], orphans["lacks"], calls.height > 0))
    last_ns = pl.concat(table.select(pl.col("ts_ns") + pl.col("dur_ns")) for table in (calls, activities)).max().item()
    cut = _find_cut_steps(marks.drop_nulls("step"), launches, orphans, last_ns)
    missing = cut.filter("is_cut")
    kept = marks.join(missing, on="mark", how="anti", maintain_order="left").drop("step", "mark")
    steps = missing["step"].unique(maintain_order=True).to_list()
    said = (traces.STEPS_CUT(steps=steps),) if steps else ()
    return WholeSteps(kept, said, cut.height > missing.height)


def _find_cut_steps(
    marks: pl.DataFrame, launches: pl.DataFrame, orphans: pl.DataFrame, last_ns: int | None
) -> pl.DataFrame:
    """Return the marks in which anything is launched, in order of time, and whether their steps are cut."""
    end = pl.col("ts_ns") + pl.col("dur_ns")
    spans = marks.select("mark", "step", start="ts_ns", end=end).sort("start", "mark")
    steps = pl.concat(
        [spans, _count_within(spans, launches, "launches"), _count_within(spans, orphans, "kernels")], how="horizontal"
    ).filter(pl.col("launches") > 0)
    before = pl.col("launches").cum_sum().shift(fill_value=0) / pl.int_range(pl.len()).clip(1)
    silent = pl.col("end") - pl.lit(last_ns, pl.Int64) > MAX_SILENT_FRACTION * (pl.col("end") - pl.col("start"))
    cut = (
        (pl.col("launches_lack") > MAX_MISSING_FRACTION * pl.col("launches"))
        | (pl.col("kernels_lack") > MAX_MISSING_FRACTION * pl.col("kernels"))
        | (pl.col("launches") < (1 - MAX_MISSING_FRACTION) * before)
        | silent
    )
    return steps.select("mark", "step", is_cut=cut.cum_max())


def _count_within(spans: pl.DataFrame, events: pl.DataFrame, name: str) -> pl.DataFrame:
    """Count the events that begin within each span, and those of them that lack what they belong to."""
    ordered = events.sort("ts_ns")
    lacking = np.concatenate([[0], np.cumsum(ordered["lacks"].to_numpy())])
    at = ordered["ts_ns"].to_numpy()
    first, last = (np.searchsorted(at, spans[edge].to_numpy()) for edge in ("start", "end"))
    return pl.DataFrame({name: last - first, f"{name}_lack": lacking[last] - lacking[first]})


def _has_nearly_all(launches_lack: pl.Series, kernels_lack: pl.Series, has_calls: bool) -> bool:
    """Return whether nearly all launches have their kernels, and nearly all kernels a call."""
    orphans = int(kernels_lack.sum()) if has_calls else 0
    return (
        len(kernels_lack) > 0
        and int(launches_lack.sum()) <= MAX_MISSING_FRACTION * len(launches_lack)
        and orphans <= max(MAX_MISSING_FRACTION * len(kernels_lack), 1)
    )
