"""Worker processes, each run as ``python -m tracekit.web.worker``, and the pool that runs them.

A worker reads its settings as a line of JSON from stdin and its name from the next line. It processes jobs until stdin
is closed. The system enforces its limits: an address space, and an alarm that ends the process. The parent process
reads the cause of its end from the exit status.
"""

import logging
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import IO

from predictors import PredictorError
from tracekit.errors import TracekitError, TraceTooLargeError
from tracekit.messages import front_ends
from tracekit.web.errors import NOT_NOW, BusyError, DiskFullError, UnreachableError, WebError
from tracekit.web.jobs import WebJob
from tracekit.web.prepared import KEEPER
from tracekit.web.settings import Settings
from tracekit.web.store import Store

POLL_INTERVAL_S = 0.25
RENEWALS_PER_LEASE = 4

# A worker can wait longer than a page for a locked database.
WRITE_WAIT_S = 60.0

RELEASED_STATUS = os.EX_TEMPFAIL
"""Exit status of a worker that leaves its job for a reason that isn't the job's."""


def main() -> None:
    """Process jobs until stdin is closed."""
    settings, name = Settings.from_json(sys.stdin.readline()), sys.stdin.readline().strip()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    resource.setrlimit(resource.RLIMIT_AS, (settings.worker_bytes, settings.worker_bytes))
    store = Store.open_prepared(settings, WRITE_WAIT_S)
    while True:
        with suppress(*NOT_NOW):  # a job in work is claimed again once its lease is over
            job = store.jobs.claim(name)
            if job is not None:
                run_job_with_limits(job, settings, store)
                continue
            KEEPER.drop_unused(store)
        time.sleep(POLL_INTERVAL_S)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(RELEASED_STATUS)


def run_job_with_limits(job: WebJob, settings: Settings, store: Store) -> None:
    """Process one job within its time limit, and renew its claim meanwhile."""
    done = threading.Event()
    beat = threading.Thread(target=_renew_claim, args=(job, settings, store, done), daemon=True)
    beat.start()
    signal.setitimer(signal.ITIMER_REAL, settings.time_limit_s)
    try:
        _run_and_record_failure(job, settings, store)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        done.set()
        beat.join()


def _renew_claim(job: WebJob, settings: Settings, store: Store, done: threading.Event) -> None:
    """Renew the claim; end this process if the job was deleted or claimed by another worker, or may be now."""
    renewed = time.monotonic()
    while not done.wait(settings.lease_s / RENEWALS_PER_LEASE):
        try:
            is_ours, renewed = store.jobs.renew(job), time.monotonic()
        except NOT_NOW:
            is_ours = time.monotonic() < renewed + settings.lease_s
        if not is_ours and not done.is_set():
            os._exit(RELEASED_STATUS)


def _run_and_record_failure(job: WebJob, settings: Settings, store: Store) -> None:
    from tracekit.web.work import execute_job

    try:
        execute_job(job, settings, store)
    except BusyError:  # the job can be done once the database responds
        sys.exit(RELEASED_STATUS)
    except TraceTooLargeError as error:
        store.jobs.fail(job, WebError(front_ends.WORKER_TABLES_TOO_LARGE(reason=error.message)))
    except (TracekitError, PredictorError) as error:
        store.jobs.fail(job, error)
    except MemoryError:
        store.jobs.fail(job, make_out_of_memory_error(settings))
    except OSError as error:
        unusable = WebError(front_ends.FILES_UNUSABLE(reason=error.strerror))
        store.jobs.fail(job, DiskFullError.from_os_error(error) or unusable)
    except Exception as error:
        # The message may contain the user's data; the traceback doesn't.
        print("".join(traceback.format_tb(error.__traceback__)), type(error).__name__, file=sys.stderr)  # noqa: T201
        store.jobs.fail(job, WebError(front_ends.SERVER_BUG()))


def make_out_of_memory_error(settings: Settings) -> WebError:
    """Return the error of a job that needs too much memory."""
    return WebError(front_ends.WORKER_OUT_OF_MEMORY(max_bytes=settings.worker_bytes))


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
        # With -P, for the code in the folder that the server was started in isn't the server's.
        command = [sys.executable, "-P", "-m", "tracekit.web.worker"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
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
        except NOT_NOW:
            return self._stopping.is_set()  # the lease expires
        return True

    def _delete_expired_periodically(self) -> None:
        while not self._stopping.is_set():
            try:
                self._store.delete_expired()
            except (UnreachableError, DiskFullError) as error:
                log.error("what has expired can't be deleted now: %s", error.message)
            except Exception:
                log.exception("what has expired can't be deleted")
            self._stopping.wait(CLEANUP_INTERVAL_S)


if __name__ == "__main__":
    main()
