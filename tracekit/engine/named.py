"""Open the engine that an option names."""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Union

from tracekit.engine.engine import Engine, InProcessEngine
from tracekit.errors import EngineError, RequestError
from tracekit.messages import fleets as messages
from tracekit.messages.requests import EXTRA_MISSING

if TYPE_CHECKING:
    from distributed import Client

IN_PROCESS, LOCAL_CLUSTER = "local", "dask"
SCHEDULER_PROTOCOLS = ("tcp://", "tls://", "ucx://", "ws://", "wss://")


def check_engine(asked: str) -> None:
    """Refuse the name of an engine that can't be opened now; start no processes.

    Raises:
        TracekitError: As :func:`open_engine`.
    """
    if asked != LOCAL_CLUSTER:
        open_engine(asked).close()
    elif find_spec("distributed") is None:
        missing = EXTRA_MISSING(distribution="Dask", reason="No module named 'distributed'", extra="dask")
        raise RequestError(missing)


def open_engine(asked: Union[str, "Client"], most: int | None = None) -> Engine:
    """Open an engine.

    Args:
        asked: ``local`` for this process, ``dask`` for processes of this machine, the address of a Dask scheduler, or
            a ``distributed.Client``.
        most: Ranks at a time in this process at most.

    Raises:
        RequestError: There is no such engine, or Dask isn't installed.
        EngineError: The scheduler doesn't answer.
    """
    if asked == IN_PROCESS:
        return InProcessEngine(most)
    try:
        from tracekit.engine.on_dask import DaskEngine

        if not isinstance(asked, str):
            return DaskEngine(asked)
        if asked == LOCAL_CLUSTER:
            return DaskEngine.start_local(os.cpu_count() or 1)
        if asked.startswith(SCHEDULER_PROTOCOLS):
            return DaskEngine.connect(asked)
    except ImportError as error:
        raise RequestError(EXTRA_MISSING(distribution="Dask", reason=str(error), extra="dask")) from error
    except (OSError, ValueError) as error:
        raise EngineError(messages.SCHEDULER_UNREACHABLE(address=str(asked))) from error
    raise RequestError(messages.ENGINE_UNKNOWN(engine=asked))
