"""Convert the report's data classes to JSON and back.

A value is a number, a string, a message, a tuple or mapping of values, or a data class of them. Messages are written as
:meth:`tracekit.messages.Message.to_dict` shows them. Type annotations say how to read a value back.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import polars as pl

from tracekit.errors import TraceError
from tracekit.messages import Message
from tracekit.messages.catalogue import read_message
from tracekit.messages.reports import NOT_A_REPORT
from tracekit.version import __version__

Reader = Callable[[Any], Any]
AnyReport = TypeVar("AnyReport")


def encode_plain(value: Any) -> bytes:
    """Encode a data class as JSON; numbers must be finite, since JSON has no infinity."""
    return msgspec.json.encode(to_builtins(value))


def decode_plain(content: bytes | str, kind: Any) -> Any:
    """Decode the output of :func:`encode_plain` as a data class.

    Raises:
        msgspec.MsgspecError: The content isn't JSON.
        KeyError: A field or a message's code is unknown.
        TypeError: A value has another type.
    """
    return _find_reader(kind)(msgspec.json.decode(content))


def read_report(content: bytes | str, kind: type[AnyReport]) -> AnyReport:
    """Read a report that :func:`encode_plain` wrote with the same version of tracekit.

    Raises:
        TraceError: The content is something else.
    """
    try:
        report: AnyReport = decode_plain(content, kind)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(NOT_A_REPORT(version=__version__)) from error
    return report


def to_builtins(value: Any) -> Any:
    """Return a value as JSON has it: the fields of a data class, a message with its text, the rows of a frame."""
    if isinstance(value, Message):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [to_builtins(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_builtins(item) for key, item in value.items()}
    if is_dataclass(value):
        return {one.name: to_builtins(getattr(value, one.name)) for one in fields(value)}
    return value.to_dicts() if isinstance(value, pl.DataFrame) else value


@cache
def _find_reader(kind: Any) -> Reader:
    """Return the function that turns decoded JSON into a value of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Message:
        return read_message
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return partial(_read_dataclass, kind, {one.name: _find_reader(hints[one.name]) for one in fields(kind)})
    if origin is tuple and args[1:] == (...,):
        return partial(_read_sequence, _find_reader(args[0]))
    if origin is tuple:
        return partial(_read_row, tuple(map(_find_reader, args)))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return partial(_read_mapping, _find_reader(args[1]))
    if origin in (Union, UnionType):
        kinds = [one for one in args if one is not NoneType]
        return partial(_read_optional, _find_reader(kinds[0]) if len(kinds) == 1 else partial(_read_scalar, kind))
    return partial(_read_scalar, kind)


def _read_dataclass(kind: Any, readers: Mapping[str, Reader], shown: Mapping[str, Any]) -> Any:
    return kind(**{name: readers[name](value) for name, value in shown.items()})


def _read_sequence(reader: Reader, items: list[Any]) -> tuple[Any, ...]:
    return tuple(map(reader, items))


def _read_row(readers: tuple[Reader, ...], items: list[Any]) -> tuple[Any, ...]:
    return tuple(reader(item) for reader, item in zip(readers, items, strict=True))


def _read_mapping(reader: Reader, shown: Mapping[str, Any]) -> dict[str, Any]:
    return {key: reader(value) for key, value in shown.items()}


def _read_optional(reader: Reader, value: Any) -> Any:
    return None if value is None else reader(value)


def _read_scalar(kind: type[Any], value: Any) -> Any:
    return msgspec.convert(value, kind)
