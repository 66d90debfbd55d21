"""Kill a server, its worker or both again and again while jobs wait, and check that none is lost, doubled or given up.

python -m tests.web.kill_storm [--kills 30] [--jobs 40] [--workers 2] [--seed 1]
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.web.conftest import Server, find_free_port, until
from tracekit.web.settings import Settings

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "synthetic_transformer_train.json.gz"
VICTIMS = ("server", "worker", "both")
SHORTEST_S, LONGEST_S = 0.2, 4.0
"""Time between two kills."""
LEASE_S = 3.0
STATES_AT_WORK = ("queued", "running")

Answer = TypeVar("Answer")


@dataclass
class Outcome:
    """What became of the jobs.

    Attributes:
        kills: Kills by victim.
        states: Jobs by state.
        lost: Jobs that are no longer there.
        doubled: Jobs that the client didn't begin, or with more than one set of reports.
        reports: Different reports among those of the finished jobs.
    """

    kills: Counter[str]
    states: Counter[str]
    lost: int
    doubled: int
    reports: int


class KilledServer:
    """A server that is started again whenever it was killed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.server = Server(settings)

    def kill(self, victim: str) -> None:
        """Kill the server, its workers or both with SIGKILL."""
        workers = self.server.workers
        for process in workers if victim != "server" else ():
            os.kill(process, signal.SIGKILL)
        if victim != "worker":
            self.server.end()
            until(lambda: not any(Path(f"/proc/{process}").exists() for process in workers))
            self.server = Server(self.settings)

    def ask(self, question: Callable[[Server], Answer]) -> Answer:
        """Ask until the server answers."""
        while True:
            try:
                return question(self.server)
            except httpx.TransportError:
                time.sleep(0.05)


def run_storm(data: Path, kills: int, jobs: int, workers: int, seed: int, longest_s: float = LONGEST_S) -> Outcome:
    """Begin the jobs, kill again and again with up to ``longest_s`` between, and wait for what is left to be done."""
    chance = random.Random(seed)
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(kills)]
    chance.shuffle(victims)
    settings = Settings(
        data=data, port=find_free_port(), workers=workers, lease_s=LEASE_S, min_free_bytes=0, max_queued_per_owner=jobs
    )
    killed = KilledServer(settings)
    sample = SAMPLE.read_bytes()
    begun = {killed.server.begin(killed.server.put(sample), ask={"gpu": ["h100-sxm"]}) for _ in range(jobs)}
    for victim in victims:
        time.sleep(chance.uniform(SHORTEST_S, longest_s))
        killed.kill(victim)
    while any(job["state"] in STATES_AT_WORK for job in _list_jobs(killed)):
        time.sleep(0.5)
    found = {job["id"]: job for job in _list_jobs(killed)}
    folders = [len(list((data / "files" / "jobs" / job).glob("*"))) for job in found]
    reports = {killed.server.client.get(job["reports"]["json"]).text for job in found.values() if job["reports"]}
    killed.server.end(signal.SIGTERM)
    doubled = len(found.keys() - begun) + sum(count > 1 for count in folders)
    states = Counter(job["state"] for job in found.values())
    return Outcome(Counter(victims), states, len(begun - found.keys()), doubled, len(reports))


def _list_jobs(killed: KilledServer) -> list[dict[str, Any]]:
    return killed.ask(lambda server: server.client.get("/api/v1/jobs").json())


def main() -> None:
    """Print what became of the jobs."""
    parser = argparse.ArgumentParser()
    for name, default in (("kills", 30), ("jobs", 40), ("workers", 2), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as data:
        outcome = run_storm(Path(data) / "data", asked.kills, asked.jobs, asked.workers, asked.seed)
    print(f"{outcome}\n{time.monotonic() - begun:.0f} s")
    sys.exit(outcome.states != {"done": asked.jobs} or outcome.lost + outcome.doubled > 0)


if __name__ == "__main__":
    main()
