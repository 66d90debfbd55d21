"""The dialect of libkineto, PyTorch's profiler: JSON text to events.

Field by field this follows libkineto's ``output_json.cpp``: an object with ``traceEvents`` (or, before 2021, the
bare list of events), times in microseconds, relative to ``baseTimeNanoseconds`` since 2024.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

from tracekit.errors import DamagedTraceError, NotATraceError

Time = TypeVar("Time", float, Decimal)
Scalar = int | float | str | bool | None
Vector = list[Scalar] | str | None


class Args(Struct, gc=False):
    """The arguments of an event that tracekit reads; writers differ in type and in spelling."""

    correlation: Scalar = None
    device: Scalar = None
    stream: Scalar = None
    bytes: Scalar = None
    external_id: Scalar = field(default=None, name="External id")
    sequence: Scalar = field(default=None, name="Sequence number")
    dims: Raw = field(default=Raw(), name="Input Dims")
    dims_2020: Raw = field(default=Raw(), name="Input dims")
    types: Raw = field(default=Raw(), name="Input type")
    strides: Raw = field(default=Raw(), name="Input Strides")
    concrete: Raw = field(default=Raw(), name="Concrete Inputs")
    grid: Vector = None
    block: Vector = None
    registers: Scalar = field(default=None, name="registers per thread")
    shared_memory: Scalar = field(default=None, name="shared memory")
    collective: Scalar = field(default=None, name="Collective name")
    collective_dtype: Scalar = field(default=None, name="dtype")
    in_nelems: Scalar = field(default=None, name="In msg nelems")
    out_nelems: Scalar = field(default=None, name="Out msg nelems")
    group_size: Scalar = field(default=None, name="Group size")
    process_group: Scalar = field(default=None, name="Process Group Name")
    group_ranks: Raw = field(default=Raw(), name="Process Group Ranks")
    record_function_id: Scalar = field(default=None, name="Record function id")
    graph_node_id: Scalar = field(default=None, name="graph node id")
    wait_on_stream: Scalar = None
    wait_on_record: Scalar = field(default=None, name="wait_on_cuda_event_record_corr_id")


NO_ARGS = Args()


class Event(Struct, Generic[Time], gc=False):
    """One entry of ``traceEvents``."""

    ph: str = ""
    cat: str | None = None
    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    ts: Time | None = None
    dur: Time | None = None
    args: Args | None = None


class DeviceProperties(Struct, rename="camel"):
    """One entry of ``deviceProperties``."""

    id: int = 0
    name: str = ""
    num_sms: int = 0
    total_global_mem: int = 0
    compute_major: int | None = None
    compute_minor: int | None = None


class Document(Struct, Generic[Time], rename="camel"):
    """The whole file."""

    trace_events: list[Event[Time]]
    device_properties: list[DeviceProperties] | None = None
    distributed_info: Any = None
    base_time_nanoseconds: Annotated[int, Meta(ge=0, lt=2**62)] = 0


def parse(data: bytes, source: str) -> Document[Any]:
    """JSON text to events.

    Raises:
        DamagedTraceError: The text is truncated or no valid JSON.
        NotATraceError: It is valid JSON of another kind.
    """
    # Relative times stay exact in a double; absolute ones of 19 digits don't, and need the slower Decimal.
    relative = b'"baseTimeNanoseconds"' in data
    number: Any = float if relative else Decimal
    try:
        with _no_garbage_collection():
            if data.lstrip()[:1] == b"[":
                return Document(trace_events=msgspec.json.decode(data, type=list[Event[number]]))
            return msgspec.json.decode(data, type=Document[number])
    except msgspec.ValidationError as error:
        raise NotATraceError(
            f"{source} is JSON, but not a PyTorch profiler trace ({error}).",
            "Export one with torch.profiler's export_chrome_trace or tensorboard_trace_handler.",
        ) from error
    except msgspec.DecodeError as error:
        raise _damaged(data, source, str(error)) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise DamagedTraceError(f"{source} is no valid JSON: {error}.") from error


def _damaged(data: bytes, source: str, reason: str) -> DamagedTraceError | NotATraceError:
    if data.lstrip()[:1] not in (b"{", b"["):
        return NotATraceError(f"{source} is no JSON.", "Expected a PyTorch profiler trace (.json or .json.gz).")
    if "truncated" in reason:
        return DamagedTraceError(
            f"{source} is cut short: the JSON ends after {len(data):,} bytes without its closing brackets.",
            "Copy or record the file again; was the job stopped while the profiler wrote?",
        )
    return DamagedTraceError(f"{source} is no valid JSON: {reason}.", "Copy or record the file again.")


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # Decoding allocates millions of objects and frees none: collecting meanwhile nearly doubles the time.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
