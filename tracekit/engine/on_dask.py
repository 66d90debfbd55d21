"""The engine of a Dask cluster: local processes, or workers on other machines."""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracekit.engine.engine import Item, Result
from tracekit.errors import EngineError
from tracekit.messages import fleets as messages

if TYPE_CHECKING:
    from distributed import Client

PATIENCE = "10s"
"""How long a scheduler may take to answer."""
RETRIES = 3
"""How often a rank is done again that failed for another reason than its trace."""
WORKER_SETTINGS = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Environment of local workers: each has one processor."""
CLUSTER_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "500ms",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}
"""Settings of a local cluster, whose profile and dashboard nobody looks at: by default watching them takes a tenth of a
processor. Workers get these settings from this process, whatever their environment says."""

CLIENT_SETTINGS = {"distributed.admin.large-graph-warning-threshold": "1GB"}
"""Settings while ranks are handed out: 70 kB of each of a thousand are no reason for a warning."""


class DaskEngine:
    """Works on ranks in the workers of a Dask cluster.

    Args:
        client: Its client.
        owned: What to close with the engine.
    """

    def __init__(self, client: "Client", owned: Sequence[object] = ()) -> None:
        self._client, self._owned = client, owned

    @classmethod
    def start_local(cls, workers: int) -> "DaskEngine":
        """Start a cluster of processes on this machine.

        Args:
            workers: Number of processes.
        """
        import dask
        from distributed import Client, LocalCluster

        with dask.config.set(CLUSTER_SETTINGS):
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",
                env=WORKER_SETTINGS,
                silence_logs=logging.CRITICAL,
            )
            client = Client(cluster)
        return cls(client, (client, cluster))

    @classmethod
    def connect(cls, address: str) -> "DaskEngine":
        """Connect to a scheduler.

        Args:
            address: Such as ``tcp://scheduler:8786``.

        Raises:
            OSError: It doesn't answer.
        """
        from distributed import Client

        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # a lost scheduler is an error of ours
        client = Client(address, timeout=PATIENCE)
        return cls(client, (client,))

    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item], count_done: Callable[[int], object]
    ) -> list[Result]:
        """Return the function's result of each item; see :meth:`tracekit.engine.Engine.map`."""
        import dask
        from distributed import as_completed
        from distributed.comm.core import CommClosedError

        with _explain_losses(CancelledError, CommClosedError), dask.config.set(CLIENT_SETTINGS):
            futures = self._client.map(function, items, pure=False, retries=RETRIES)
            try:
                for done, _ in enumerate(as_completed(futures), start=1):
                    count_done(done)
                return list(self._client.gather(futures))
            finally:
                self._client.cancel(futures)

    def run_everywhere(self, function: Callable[[Item], object], item: Item) -> list[object]:
        """Call the function in each worker that is alive; see :meth:`tracekit.engine.Engine.run_everywhere`."""
        with _explain_losses(CancelledError, OSError):
            return list(self._client.run(function, item, on_error="return").values())

    def share_memory(self, memory_bytes: int) -> int:
        """Return how much one rank may take: as much as allowed, or half of what its worker has."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        limits: list[int] = [one["memory_limit"] // one["nthreads"] // 2 for one in workers if one["memory_limit"]]
        return min([memory_bytes, *limits])

    def close(self) -> None:
        """Close the connection, and the cluster if it was started here."""
        for one in self._owned:
            one.close()  # type: ignore[attr-defined]


@contextmanager
def _explain_losses(*lost: type[Exception]) -> Iterator[None]:
    """Turn what Dask raises for lost workers, and for a lost scheduler, into :class:`EngineError`."""
    from distributed import KilledWorker

    try:
        yield
    except KilledWorker as error:
        raise EngineError(messages.WORKERS_ENDED(times=RETRIES + 1)) from error
    except lost as error:
        raise EngineError(messages.SCHEDULER_LOST()) from error
