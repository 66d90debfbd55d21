"""JSON as every verb prints it."""

import json
from typing import Any

SCHEMA_VERSION = 1


def document(body: dict[str, Any]) -> str:
    """What a program may rely on: it begins with the version of its form."""
    return dump({"schema_version": SCHEMA_VERSION, **body})


def dump(data: Any) -> str:
    """Indented, with a line break at the end; not-a-number and infinity are refused, as JSON has neither."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
