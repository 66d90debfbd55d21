"""Read the GPU that a trace describes; figures that no GPU has are left out."""

import re
from collections import Counter
from collections.abc import Mapping

import msgspec
import polars as pl

from tracekit.ingest.event_decoder import JSON_ERRORS
from tracekit.ingest.fields import CONTROL_CHARACTERS
from tracekit.trace import TraceDevice

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

    Args:
        keys: The top-level keys of the file.
        activities: What ran on the GPUs.
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
