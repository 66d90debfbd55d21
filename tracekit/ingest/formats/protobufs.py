"""Message classes of small protobuf schemas, for the package ``protobuf``, which not every installation has."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tracekit.errors import DamagedTraceError, NotATraceError
from tracekit.ingest.formats.tables import ForeignFile
from tracekit.messages.traces import FORMAT_DAMAGED, FORMAT_NEEDS_PACKAGE

Schema = Mapping[str, Sequence[str]]
"""Fields of each message as in a ``.proto`` file: ``repeated uint64 ids = 4``. Enums are int32, which encodes alike."""

_FIELD = re.compile(r"(repeated )?(\w+) (\w+) = (\d+)")


def build_messages(package: str, schema: Schema) -> dict[str, Any]:
    """Build the class of each message.

    Args:
        package: Name of the schema, unique in the process.
        schema: Its messages; those that fields refer to must be among them.

    Raises:
        ImportError: The package isn't installed.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, fields in schema.items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add_field(message, field, package, schema)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in schema}


def _add_field(message: Any, text: str, package: str, schema: Schema) -> None:
    parsed = _FIELD.fullmatch(text)
    assert parsed is not None, text
    repeated, kind, name, number = parsed.groups()
    field = message.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if kind in schema:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{package}.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
        field.options.packed = bool(repeated) and kind not in ("string", "bytes")


def parse_message(file: ForeignFile, form: str, load: Callable[[], dict[str, Any]], name: str) -> Any:
    """Parse a file that is one message.

    Args:
        file: The file.
        form: Its format in messages.
        load: Loads the classes of its schema.
        name: The message.

    Raises:
        TraceError: It is none, too large, or the package ``protobuf`` isn't installed.
    """
    file.check_size(file.path.stat().st_size)
    with name_failures(file, form):
        return load()[name].FromString(file.path.read_bytes())


@contextmanager
def name_failures(file: ForeignFile, form: str) -> Iterator[None]:
    """Turn the failures of the protobuf library into errors about a file.

    Raises:
        DamagedTraceError: The file is none of this format.
        NotATraceError: The package isn't installed.
    """
    try:
        yield
    except ImportError:
        raise NotATraceError(FORMAT_NEEDS_PACKAGE(path=file.name, form=form)) from None
    except Exception as error:
        from google.protobuf.message import DecodeError

        if not isinstance(error, DecodeError | UnicodeDecodeError):
            raise
        reason = "its bytes aren't of this format, or it is cut short"
        raise DamagedTraceError(FORMAT_DAMAGED(path=file.name, form=form, reason=reason)) from error
