"""Worker processes, and what becomes of a job whose worker died."""

import logging
import secrets
import signal
import socket
import subprocess
import sys
import threading
from typing import IO

from tracekit.web.settings import Settings
from tracekit.web.store import Store
from tracekit.web.worker import out_of_memory

log = logging.getLogger("tracekit.web")

PAUSE_S = 1.0
SWEEP_S = 60.0


class Workers:
    """Keeps the worker processes of a server going, one thread for each, and sweeps the store."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._stopping = threading.Event()
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._threads = [threading.Thread(target=self._keep_one, daemon=True) for _ in range(settings.workers)]
        self._threads.append(threading.Thread(target=self._sweep, daemon=True))

    def start(self) -> None:
        """Start them."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End them; what they were at is queued again."""
        self._stopping.set()
        for process in list(self._processes.values()):
            process.kill()
        for thread in self._threads:
            thread.join()

    def _keep_one(self) -> None:
        while not self._stopping.is_set():
            name = f"{socket.gethostname()}-{secrets.token_hex(8)}"
            try:
                self._run(name)
            except Exception:  # the system has no process left, or the data base can't be reached: the lease ends a job
                log.exception("a worker can't be started, or its end can't be noted")
            self._processes.pop(name, None)
            self._stopping.wait(PAUSE_S)

    def _run(self, name: str) -> None:
        """One worker from its start to its end."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tracekit.web.worker"], stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        self._processes[name] = process
        if self._stopping.is_set():
            process.kill()
        stdin: IO[str] = process.stdin  # type: ignore[assignment]  # it is a pipe
        try:
            stdin.write(f"{self._settings.to_json()}\n{name}\n")
            stdin.flush()
        except BrokenPipeError:
            pass
        status = process.wait()
        stdin.close()
        if status == -signal.SIGALRM:
            self._store.jobs.give_up(
                name,
                f"The job took longer than it may: {self._settings.time_limit_s} s.",
                "Send fewer steps or one rank; whoever runs the server sets the limit (--time-limit).",
            )
        elif status == -signal.SIGABRT:
            self._store.jobs.give_up(name, *out_of_memory(self._settings))
        else:
            self._store.jobs.hand_back(name, counts=not self._stopping.is_set())

    def _sweep(self) -> None:
        while not self._stopping.is_set():
            try:
                self._store.sweep()
            except Exception:
                log.exception("what has expired can't be deleted now")
            self._stopping.wait(SWEEP_S)
