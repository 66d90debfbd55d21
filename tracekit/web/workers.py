"""Worker processes, and the handling of jobs whose worker died."""

import logging
import secrets
import signal
import socket
import subprocess
import sys
import threading
from typing import IO

from tracekit.messages import front_ends
from tracekit.web.errors import BusyError, UnreachableError, WebError
from tracekit.web.settings import Settings
from tracekit.web.store import Store
from tracekit.web.worker import RELEASED_STATUS, make_out_of_memory_error

log = logging.getLogger("tracekit.web")

PAUSE_S = 1.0
CLEANUP_INTERVAL_S = 60.0


class WorkerPool:
    """Worker processes of a server, one thread for each, and a thread that deletes expired data."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings, self._store = settings, store
        self._stopping = threading.Event()
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._threads = [
            threading.Thread(target=self._keep_worker_running, daemon=True) for _ in range(settings.workers)
        ]
        self._threads.append(threading.Thread(target=self._delete_expired_periodically, daemon=True))

    def start(self) -> None:
        """Start the worker processes."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the worker processes; queue their jobs again."""
        self._stopping.set()
        for process in list(self._processes.values()):
            process.kill()
        for thread in self._threads:
            thread.join()

    def _keep_worker_running(self) -> None:
        while not self._stopping.is_set():
            name = f"{socket.gethostname()}-{secrets.token_hex(8)}"
            try:
                self._run_worker(name)
            except OSError as error:
                log.error("a worker can't be started: %s", error.strerror)
                self._stopping.wait(PAUSE_S)
            self._processes.pop(name, None)

    def _run_worker(self, name: str) -> None:
        """Run one worker process from start to end."""
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
        self._stopping.wait(PAUSE_S)  # what ended the worker may end the server next: then it wasn't the job's fault
        while not self._note_end(name, status):
            self._stopping.wait(PAUSE_S)

    def _note_end(self, name: str, status: int) -> bool:
        """Note what became of an ended worker's job; return whether the database could be changed."""
        jobs, settings = self._store.jobs, self._settings
        try:
            if status == -signal.SIGALRM:
                jobs.fail_worker_job(name, WebError(front_ends.JOB_TOO_SLOW(limit_s=settings.time_limit_s)))
            elif status == -signal.SIGABRT:
                jobs.fail_worker_job(name, make_out_of_memory_error(settings))
            elif self._stopping.is_set() or status == RELEASED_STATUS:
                jobs.release_worker_job(name)
            else:
                jobs.note_worker_death(name)
        except BusyError:
            return self._stopping.is_set()  # the lease expires
        return True

    def _delete_expired_periodically(self) -> None:
        while not self._stopping.is_set():
            try:
                self._store.delete_expired()
            except UnreachableError as error:
                log.error("what has expired can't be deleted now: %s", error.message)
            except Exception:
                log.exception("what has expired can't be deleted")
            self._stopping.wait(CLEANUP_INTERVAL_S)
