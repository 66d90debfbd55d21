"""A worker process, run as ``python -m tracekit.web.worker``.

It reads its settings as a line of JSON from stdin and its name from the next line. It processes jobs until stdin is
closed. The system enforces its limits: an address space, and an alarm that ends the process. The parent process
reads the cause of its end from the exit status.
"""

import os
import resource
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress

from predictors import PredictorError
from tracekit.errors import TracekitError, TraceTooLargeError
from tracekit.messages import front_ends
from tracekit.web.errors import BusyError, DiskFullError, WebError
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
        with suppress(BusyError):  # it is told in the log
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
        except BusyError:
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


if __name__ == "__main__":
    main()
