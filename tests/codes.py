"""Assert on messages by their codes."""

from collections.abc import Iterable

from tracekit.messages import Message


def list_codes(messages: Iterable[Message]) -> list[str]:
    """List the codes of some messages."""
    return [message.code for message in messages]


def find_message(messages: Iterable[Message], code: str) -> Message:
    """Return the only message with a code."""
    (found,) = (message for message in messages if message.code == code)
    return found
