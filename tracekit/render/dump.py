"""JSON output shared by all commands."""

import json
from typing import Any

from tracekit.escape import to_json

SCHEMA_VERSION = 1


def dump_document(body: dict[str, Any]) -> str:
    """Return a versioned JSON document: its first key is the schema version."""
    return dump_json({"schema_version": SCHEMA_VERSION, **body})


def dump_json(data: Any) -> str:
    """Return indented JSON with a final line break; NaN and infinity are refused, as JSON has neither."""
    return to_json(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"
