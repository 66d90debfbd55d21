"""Assert on messages by their codes."""

from collections.abc import Callable, Iterable

from tracekit.errors import TracekitError
from tracekit.messages import Message


def list_codes(messages: Iterable[Message]) -> list[str]:
    """List the codes of some messages."""
    return [message.code for message in messages]


def find_message(messages: Iterable[Message], code: str) -> Message:
    """Return the only message with a code."""
    (found,) = (message for message in messages if message.code == code)
    return found


def has_code(code: str) -> Callable[[TracekitError], bool]:
    """Return a check of an error's code, for ``pytest.raises(..., check=has_code("file-not-found"))``."""
    return lambda error: error.code == code
