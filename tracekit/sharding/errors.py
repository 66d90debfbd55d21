"""What goes wrong with sharding plans."""

from tracekit.errors import TracekitError


class ShardingError(TracekitError):
    """Tables can't be read, or don't fit."""
