"""Put load on a server on this machine: many uploads at once, then many jobs. Print the table of docs/how-to/serve.md.

python -m tests.web.load_test [--uploads 50] [--jobs 200] [--workers 2] [--megabytes 20]
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import httpx

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "synthetic_transformer_train.json.gz"
PORT = 8322
URL = f"http://127.0.0.1:{PORT}"
OWNERS = 4
TUS = {"Tus-Resumable": "1.0.0"}
DATA = {**TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}


@contextmanager
def run_server(workers: int, data: str) -> Iterator[None]:
    """Run a server for as long as the block runs."""
    command = [sys.executable, "-m", "tracekit", "serve", "--port", str(PORT), "--data", data]
    process = subprocess.Popen([*command, "--workers", str(workers)], stderr=subprocess.DEVNULL)
    try:
        while not _answers():
            if process.poll() is not None:
                raise SystemExit(f"the server ended at once: is port {PORT} taken?")
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _answers() -> bool:
    try:
        return httpx.get(f"{URL}/login").is_success
    except httpx.TransportError:
        return False


def open_browser() -> httpx.Client:
    """Return a client with cookies of its own."""
    client = httpx.Client(base_url=URL, timeout=600, limits=httpx.Limits(max_connections=200))
    client.get("/").raise_for_status()
    return client


def measure_seconds(call: Callable[[], object]) -> float:
    """Measure the seconds of a call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def upload(client: httpx.Client, data: bytes) -> str:
    """Upload one file by tus, and return its id."""
    made = client.post("/api/v1/uploads", headers={**TUS, "Upload-Length": str(len(data))}).raise_for_status()
    place = made.headers["location"]
    client.patch(place, headers=DATA, content=data).raise_for_status()
    return str(place.rsplit("/", 1)[-1])


def upload_at_once(count: int, megabytes: int, owners: list[httpx.Client]) -> None:
    """Upload all files at the same time."""
    data = os.urandom(megabytes << 20)
    with ThreadPoolExecutor(count) as pool:
        begun = time.perf_counter()
        calls = [
            pool.submit(measure_seconds, lambda client=client: upload(client, data))
            for client, _ in zip(cycle(owners), range(count))
        ]
        taken = [call.result() for call in calls]
    wall = time.perf_counter() - begun
    print_row(f"{count} uploads of {megabytes} MiB at once", wall, taken, f"{count * megabytes / wall:.0f} MiB/s")


def run_jobs(count: int, owners: list[httpx.Client]) -> None:
    """Queue all jobs at once; meanwhile their owners look at the page."""
    sample = SAMPLE.read_bytes()
    uploads = [(client, upload(client, sample)) for client, _ in zip(cycle(owners), range(count))]
    body = [{"uploads": [each], "ask": {"gpu": ["h100-sxm"]}} for _, each in uploads]
    begun = time.perf_counter()
    taken = [
        measure_seconds(
            lambda client=client, wanted=wanted: client.post("/api/v1/jobs", json=wanted).raise_for_status()
        )
        for (client, _), wanted in zip(uploads, body, strict=True)
    ]
    print_row(f"{count} jobs queued", time.perf_counter() - begun, taken, "")
    pages: list[float] = []
    while True:
        states = [job["state"] for client in owners for job in client.get("/api/v1/jobs").json()]
        if not {"queued", "running"} & set(states):
            break
        pages += [measure_seconds(lambda: owners[0].get("/").raise_for_status()) for _ in range(3)]
        time.sleep(1)
    wall = time.perf_counter() - begun
    print_row(
        "… and done",
        wall,
        [],
        f"{count / wall:.2f} jobs/s, {states.count('done')} done, {states.count('failed')} failed",
    )
    print_row("first page meanwhile", 0.0, pages, f"{len(pages)} times")


def print_row(what: str, wall_s: float, taken: list[float], rest: str) -> None:
    """Print a line of the table."""
    middle, high = ("", "") if not taken else (statistics.median(taken), max(taken))
    cells = [f"{cell:.3f}" if isinstance(cell, float) else cell for cell in (middle, high)]
    print(f"| {what} | {f'{wall_s:.1f}' if wall_s else ''} | {' | '.join(cells)} | {rest} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    for name, default in (("uploads", 50), ("jobs", 200), ("workers", 2), ("megabytes", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    print("| what | wall, s | median of one, s | longest, s | |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as data, run_server(asked.workers, data):
        owners = [open_browser() for _ in range(OWNERS)]
        upload_at_once(asked.uploads, asked.megabytes, owners)
        run_jobs(asked.jobs, owners)


if __name__ == "__main__":
    main()
