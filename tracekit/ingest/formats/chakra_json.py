"""Chakra's traces as its ``chakra_jsonizer`` prints them: a JSON object per message, one behind the other."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tracekit.ingest.formats.chakra_schema import NodeType

MARK = rb'\A\s*\{\s*"version"\s*:\s*"[^"\0]{0,20}"[^\0]{0,4096}?\}\s*\{\s*"(?:id|name)"\s*:\s*"'
_TYPE_SUFFIX = "_NODE"
_SPACE = re.compile(r"\s*")


def decode_messages(text: str, classes: dict[str, Any]) -> Iterator[Any]:
    """Yield the metadata and then the nodes, as the classes of the schema.

    Args:
        text: The file.
        classes: The message classes by name.

    Raises:
        DecodeError: It isn't in this form.
    """
    from google.protobuf.json_format import ParseDict, ParseError
    from google.protobuf.message import DecodeError

    name = "GlobalMetadata"
    try:
        for found in _decode_objects(text):
            message = ParseDict(_number_type(found), classes[name](), ignore_unknown_fields=True)
            name = "Node"
            yield message
    except (ValueError, TypeError, KeyError, RecursionError, ParseError) as error:
        raise DecodeError(str(error)) from error


def _decode_objects(text: str) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(), 0
    while (at := _skip_space(text, at)) < len(text):
        found, at = decoder.raw_decode(text, at)
        yield found


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _number_type(node: dict[str, Any]) -> dict[str, Any]:
    """Replace the name of a node's type by its number."""
    kind = node.get("type") if isinstance(node, dict) else None
    return node | {"type": NodeType[kind.removesuffix(_TYPE_SUFFIX)].value} if isinstance(kind, str) else node
