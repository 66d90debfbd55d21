"""A worker process: ``python -m tracekit.web.worker``, its settings as a line of JSON on stdin, its name as the next.

It claims jobs one after the other for as long as stdin stays open. Its limits are the system's: an address space, and
an alarm that ends the process; whoever started it tells from the exit status what happened.
"""

import os
import resource
import signal
import sys
import threading
import time
import traceback

from predictors import PredictorError
from tracekit.errors import TracekitError, TraceTooLargeError
from tracekit.units import byte_count
from tracekit.web.errors import FullError, WebError
from tracekit.web.jobs import Job
from tracekit.web.settings import Settings
from tracekit.web.store import Store

IDLE_S = 0.25
BEATS_PER_LEASE = 4


def main() -> None:
    """Work until stdin is closed."""
    settings, name = Settings.from_json(sys.stdin.readline()), sys.stdin.readline().strip()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    resource.setrlimit(resource.RLIMIT_AS, (settings.worker_bytes, settings.worker_bytes))
    store = Store.open(settings)
    while True:
        job = store.jobs.claim(name)
        if job is None:
            time.sleep(IDLE_S)
        else:
            do(job, settings, store)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def do(job: Job, settings: Settings, store: Store) -> None:
    """One job within its time, with signs of life."""
    done = threading.Event()
    beat = threading.Thread(target=_beat, args=(job, settings, store, done), daemon=True)
    beat.start()
    signal.setitimer(signal.ITIMER_REAL, settings.time_limit_s)
    try:
        _try(job, settings, store)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        done.set()
        beat.join()


def _beat(job: Job, settings: Settings, store: Store, done: threading.Event) -> None:
    """Renew the claim; a job that is another's by now, or deleted, ends this process."""
    while not done.wait(settings.lease_s / BEATS_PER_LEASE):
        if not store.jobs.renew(job) and not done.is_set():
            os._exit(0)


def _try(job: Job, settings: Settings, store: Store) -> None:
    from tracekit.web.work import work

    try:
        work(job, settings, store)
    except TraceTooLargeError as error:
        store.jobs.fail(job, error.message, out_of_memory(settings)[1])
    except (TracekitError, PredictorError) as error:
        store.jobs.fail(job, error.message, error.hint)
    except MemoryError:
        store.jobs.fail(job, *out_of_memory(settings))
    except OSError as error:
        shown = FullError.of(error) or WebError(f"The server can't use its files: {error.strerror}.", "Try later.")
        store.jobs.fail(job, shown.message, shown.hint)
    except Exception as error:
        # The message may hold text of the user's; where it happened doesn't.
        print("".join(traceback.format_tb(error.__traceback__)), type(error).__name__, file=sys.stderr)  # noqa: T201
        store.jobs.fail(job, "This is a bug in tracekit.", "Please report it; whoever runs the server has its log.")


def out_of_memory(settings: Settings) -> tuple[str, str]:
    """What to say of a job that needs too much memory."""
    return (
        f"The job needs more memory than a worker may take: {byte_count(settings.worker_bytes)}.",
        "Send fewer steps or one rank; whoever runs the server sets the limit (--memory).",
    )


if __name__ == "__main__":
    main()
