"""Read the model's configuration that lies among the traces."""

from collections.abc import Sequence

from tracekit.bounds import MAX_MODEL_CONFIG_BYTES
from tracekit.errors import ModelConfigError
from tracekit.ingest.source import TraceSource
from tracekit.messages import Message
from tracekit.messages import models as messages
from tracekit.models.llm import ModelConfig, parse_model_config


def read_given_config(given: Sequence[TraceSource]) -> tuple[ModelConfig | None, tuple[Message, ...]]:
    """Read the model's configuration; one that a directory, glob or archive holds is left out if it isn't understood.

    Args:
        given: The configurations among the inputs.

    Returns:
        The model, None without one, and a warning if one was left out.

    Raises:
        ModelConfigError: Several were given, or the one that was named isn't understood.
    """
    if not given:
        return None, ()
    try:
        if len(given) > 1:
            raise ModelConfigError(messages.CONFIG_NOT_UNIQUE(paths=[source.name for source in given]))
        return parse_model_config(_read_text(given[0]), given[0].name), ()
    except ModelConfigError as error:
        if not given[0].is_listed:
            raise
        return None, (messages.CONFIG_SKIPPED(error=error.catalogue_message),)


def _read_text(source: TraceSource) -> bytes:
    with source.open() as stream:
        return stream.read(MAX_MODEL_CONFIG_BYTES + 1)
