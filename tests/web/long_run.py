"""Run servers under uploads, fleets, cancels, kills, a full disk and a clock that jumps; check every job's outcome.

python -m tests.web.long_run [--minutes 120] [--seed 1] [--database postgresql://... --restart-database COMMAND]

Two servers share a store on a disk of 192 MB; where none may be mounted, the disk is never full. Each job must end as
its files let it, with the same report as its like, and the memory of the server that isn't killed must stay flat.
"""

import argparse
import base64
import json
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select

from tests.fleet.test_fleet import save
from tests.web.chaos import LEASE_S, Chaos, Clock, Use, mount_small_disk
from tracekit.testing import TraceBuilder
from tracekit.web.database import UPLOADS
from tracekit.web.settings import Settings
from tracekit.web.store import Store

DISK_MEGABYTES = 192
PAUSES_S = (4.0, 20.0)
"""Time between two faults."""
MEASURED_EVERY_S = 5.0
MOST_AT_WORK, MOST_KEPT = 6, 12
LONGEST_S = 600.0
"""A job that takes longer hangs."""
MAX_GROWTH, MAX_GROWTH_BYTES = 0.1, 16 << 20
"""What memory may grow by from the second quarter of the run to the last."""
TUS = {"Tus-Resumable": "1.0.0"}
DATA = {**TUS, "Content-Type": "application/offset+octet-stream"}
ASKED = {"gpu": ["h100-sxm"]}
FULL = 507
AGAIN = (429, 503, FULL)
"""What a client is told to try again later."""


class NoRoomError(Exception):
    """No room for an upload."""


@dataclass
class Ticket:
    """A job that a client began.

    Attributes:
        job: Its id.
        kind: What it is of.
        state: In which state it must end.
        root: The job that it was split from, with which it is deleted; empty for none.
        begun: When it began.
    """

    job: str
    kind: str
    state: str
    root: str = ""
    begun: float = field(default_factory=time.monotonic)


@dataclass
class LongRun:
    """A client of two servers, and what it has found.

    Attributes:
        done: Jobs that ended as they should, by kind.
        answers: Answers of the servers by status, and broken connections.
        wrong: What shouldn't have happened.
    """

    chaos: Chaos
    chance: random.Random
    traces: dict[str, list[bytes]]
    done: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    at_work: list[Ticket] = field(default_factory=list)
    kept: list[Ticket] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    reports: dict[str, str] = field(default_factory=dict)
    uses: list[Use] = field(default_factory=list)

    def __post_init__(self) -> None:
        client = self.chaos.steady.client
        client.get("/").raise_for_status()
        self.cookies = httpx.Cookies(client.cookies)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        """Send a request to one of the servers; return none if the connection broke."""
        server = self.chance.choice(self.chaos.servers)
        server.client.cookies = self.cookies
        try:
            answer = server.client.request(method, path, **options)
        except (httpx.TransportError, RuntimeError):  # a client of a server that was killed is closed
            self.answers["broken"] += 1
            return None
        self.answers[str(answer.status_code)] += 1
        if answer.status_code >= 500 and answer.status_code not in AGAIN:
            self.wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
        return answer

    def insist(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request until a server takes or refuses it."""
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            answer = self.send(method, path, **options)
            if answer is not None and answer.status_code not in AGAIN:
                return answer
            time.sleep(0.3)
        raise TimeoutError(f"{method} {path}")

    def upload(self, data: bytes, name: str) -> str:
        """Upload a file at once.

        Raises:
            NoRoomError: There is no room for it.
        """
        while True:
            answer = self.send("PUT", f"/api/v1/traces/{name}", content=data)
            if answer is not None and answer.status_code == FULL:
                raise NoRoomError
            if answer is not None and answer.status_code not in AGAIN:
                return str(answer.json()["id"])
            time.sleep(0.3)

    def upload_in_pieces(self, data: bytes, name: str) -> str:
        """Upload a file in pieces, each of which may fail: then ask how much has arrived, and go on from there."""
        encoded = base64.b64encode(name.encode()).decode()
        headers = {**TUS, "Upload-Length": str(len(data)), "Upload-Metadata": f"filename {encoded}"}
        place = self.insist("POST", "/api/v1/uploads", headers=headers).headers["location"]
        at = 0
        while at < len(data):
            end = min(len(data), at + self.chance.randint(1, len(data)))
            self.send("PATCH", place, headers={**DATA, "Upload-Offset": str(at)}, content=data[at:end])
            at = int(self.insist("HEAD", place, headers=TUS).headers["upload-offset"])
        return str(place.rsplit("/", 1)[-1])

    def begin(self, kind: str, state: str, uploads: Sequence[str], ask: dict[str, Any] | None) -> Ticket:
        """Begin a job; if the answer is lost, find it among all jobs."""
        while True:
            answer = self.send("POST", "/api/v1/jobs", json={"uploads": [*uploads], "ask": ask})
            if answer is not None and answer.status_code == 201:
                job = answer.json()["id"]
                break
            listed = self.insist("GET", "/api/v1/jobs").json()
            unknown = [one["id"] for one in listed if one["id"] not in self.known]
            if unknown:
                (job,) = unknown
                break
            if answer is not None and answer.status_code not in AGAIN:
                raise ValueError(f"{kind} isn't begun: {answer.status_code} {answer.text[:200]}")
            time.sleep(0.3)
        self.known.add(job)
        ticket = Ticket(job, kind, state)
        self.at_work.append(ticket)
        return ticket

    def begin_one(self) -> None:
        """Begin a job of a kind chosen at random."""
        kind = self.chance.choice(["whole", "whole", "pieces", "fleet", "damaged", "examined", "cancelled", "split"])
        if kind == "split":
            runs = [(f"{run}/{number}.json", data) for run in "ab" for number, data in enumerate(self.traces["ranks"])]
            self.begin(kind, "split", [self.upload(data, name) for name, data in runs], {})
        elif kind == "fleet":
            names = [f"rank{number}.json.gz" for number in range(len(self.traces[kind]))]
            uploads = [self.upload(data, name) for name, data in zip(names, self.traces[kind], strict=True)]
            self.begin(kind, "done", uploads, ASKED)
        elif kind == "damaged":
            self.begin(kind, "failed", [self.upload(b'{"traceEvents": 3', "trace.json")], ASKED)
        elif kind == "examined":
            self.begin(kind, "found", [self.upload(self.traces["whole"][0], "trace.json")], None)
        elif kind == "pieces":
            self.begin("whole", "done", [self.upload_in_pieces(self.traces["whole"][0], "trace.json")], ASKED)
        else:
            ticket = self.begin("whole", "done", [self.upload(self.traces["whole"][0], "trace.json")], ASKED)
            if kind == "cancelled":
                time.sleep(self.chance.uniform(0, 2))
                self.delete(ticket)
                self.at_work.remove(ticket)
                self.done["cancelled"] += 1

    def look(self, ticket: Ticket) -> dict[str, Any] | None:
        """Return a job as a server shows it; none if it is gone."""
        answer = self.insist("GET", f"/api/v1/jobs/{ticket.job}")
        return answer.json() if answer.status_code == 200 else None

    def check_all(self) -> None:
        """Check the jobs at work: those that have ended must have ended as they should."""
        for ticket in [*self.at_work]:
            job = self.look(ticket)
            if job is not None and job["state"] in ("queued", "running"):
                if time.monotonic() - ticket.begun < LONGEST_S:
                    continue
                self.wrong.append(f"{ticket.kind} {ticket.job} hangs: {job['state']}, {job['stage']}")
            elif job is None:
                self.wrong.append(f"{ticket.kind} {ticket.job} is lost")
            elif job["state"] == "failed" and job["error"]["code"] == "disk-full" and self.chaos.faults["disk full"]:
                self.ask_again(ticket)
            elif job["state"] != ticket.state:
                self.wrong.append(f"{ticket.kind} {ticket.job} is {job['state']}: {job['error']}")
            else:
                self.check_ended(ticket, job)
            self.at_work.remove(ticket)
            if ticket not in self.at_work:
                self.kept.append(ticket)

    def ask_again(self, ticket: Ticket) -> None:
        """Ask a job again that failed for want of room, as its owner would."""
        self.done["asked again"] += 1
        self.insist("POST", f"/api/v1/jobs/{ticket.job}/ask", json={} if ticket.kind in ("split", "part") else ASKED)
        is_examined = ticket.state == "found"
        self.at_work.append(Ticket(ticket.job, "whole", "done") if is_examined else ticket)

    def check_ended(self, ticket: Ticket, job: dict[str, Any]) -> None:
        """Check what an ended job tells; ask about one that was only examined."""
        self.done[ticket.kind] += 1
        for part in job["parts"]:
            self.known.add(part)
            self.at_work.append(Ticket(part, "part", "done", ticket.job))
        if ticket.state == "found":
            self.insist("POST", f"/api/v1/jobs/{ticket.job}/ask", json=ASKED)  # 409 if the answer to it was lost
            self.at_work.append(Ticket(ticket.job, "whole", "done"))
        told = [str(job["error"] and job["error"]["code"])]
        if job["reports"]:
            told = [self.insist("GET", job["reports"][form]).text for form in ("json", "md", "csv")]
        same = self.reports.setdefault(ticket.kind, "\n".join(told))
        if same != "\n".join(told):
            self.wrong.append(f"{ticket.kind} {ticket.job} tells something else than its like")
        for page in ("/", f"/jobs/{ticket.job}", job["link"]):
            if not self.insist("GET", page, follow_redirects=True).is_success:
                self.wrong.append(f"{ticket.kind} {ticket.job}: no page {page}")

    def delete(self, ticket: Ticket) -> None:
        """Delete a job; one that is gone was deleted, though the answer was lost."""
        answer = self.insist("DELETE", f"/api/v1/jobs/{ticket.job}")
        if answer.status_code not in (204, 404) or self.look(ticket) is not None:
            self.wrong.append(f"{ticket.kind} {ticket.job} isn't deleted: {answer.status_code} {answer.text[:200]}")

    def measure(self, ending: threading.Event) -> None:
        """Measure what the steady server and its worker use, until the end."""
        while not ending.wait(MEASURED_EVERY_S):
            steady = self.chaos.steady
            for process in (steady.process.pid, *steady.workers):
                known = [use for use in self.uses if use.process == process]
                use = known[0] if known else Use(process)
                if use.measure() and not known:
                    self.uses.append(use)

    def work(self, minutes: float) -> None:
        """Begin and check jobs for some minutes, and until each kind of fault has happened."""
        end, chaos = time.monotonic() + 60 * minutes, self.chaos
        while time.monotonic() < end or (chaos.faults.keys() < chaos.kinds.keys() and not chaos.failed):
            if len(self.at_work) < MOST_AT_WORK:
                with suppress(NoRoomError):
                    self.begin_one()
            self.check_all()
            self.delete_some()
            time.sleep(self.chance.uniform(0, 1))

    def delete_some(self) -> None:
        """Delete what is kept beyond a number, but for jobs that others at work are part of."""
        needed = {name for one in self.at_work for name in (one.job, one.root)}
        free = [ticket for ticket in self.kept if ticket.job not in needed]
        for ticket in self.chance.sample(free, min(len(free), max(0, len(self.kept) - MOST_KEPT))):
            self.kept.remove(ticket)
            self.delete(ticket)

    def finish(self) -> None:
        """Wait for the jobs at work, and delete all jobs."""
        while self.at_work:
            self.check_all()
            time.sleep(0.3)
        for job in self.insist("GET", "/api/v1/jobs").json():
            self.delete(Ticket(job["id"], "kept", ""))


def run_for(
    folder: Path,
    minutes: float,
    seed: int,
    *,
    database: str | None = None,
    restart_database: str | None = None,
    pauses_s: tuple[float, float] = PAUSES_S,
) -> tuple[LongRun, dict[str, Any]]:
    """Run all for some minutes in an empty folder; return what was found, and a summary."""
    with mount_small_disk(folder / "disk", DISK_MEGABYTES) as is_small, (folder / "log").open("wb") as log:
        settings = Settings(
            data=folder / "disk" / "data", database=database, lease_s=LEASE_S, min_free_bytes=0, engine="local",
            engine_ranks=4,
        )  # fmt: skip
        traces = {
            "whole": [make_trace().to_json()],
            "ranks": [make_trace(rank).to_json() for rank in range(2)],
            "fleet": [path.read_bytes() for path in sorted(save(_make(folder / "ranks"), 4).iterdir())],
        }
        clock = Clock(folder / "clock")
        chaos = Chaos(settings, clock, log, random.Random(seed), restart_database, is_small)
        run, ending = LongRun(chaos, random.Random(seed + 1), traces), threading.Event()
        threads = [
            threading.Thread(target=chaos.run, args=(pauses_s,)),
            threading.Thread(target=run.measure, args=(ending,)),
        ]
        for thread in threads:
            thread.start()
        try:
            run.work(minutes)
        finally:
            chaos.stop_faults()
            threads[0].join()
            clock.jump(0.0)
            try:
                run.finish()
            finally:
                ending.set()
                threads[1].join()
                chaos.end()
        run.wrong += list_leftovers(settings)
    run.wrong += [*list_logged_bugs(folder / "log"), *filter(None, [chaos.failed])]
    return run, summarize(run)


def _make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def make_trace(rank: int | None = None) -> TraceBuilder:
    """Make a small trace, of one of two ranks."""
    builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
    if rank is not None:
        builder.metadata = {"distributedInfo": {"rank": rank, "world_size": 2}, **builder.metadata}
    return builder.kernel("ampere_sgemm_64x32", 20, 100, launch=10)


def list_leftovers(settings: Settings) -> list[str]:
    """List the files that are left once all jobs are deleted and what nobody refers to is cleared away.

    Uploads without a job, whose client didn't hear that they had arrived, are kept for a day.
    """
    with closing(Store.open(settings)) as store:
        store.delete_expired()
        waiting = {row["id"] for row in store.database.read(select(UPLOADS.c.id).where(UPLOADS.c.job.is_(None)))}
    places = (settings.data / name for name in ("scratch", "files/jobs", "files/uploads"))
    left = [path for place in places for path in place.rglob("*") if path.is_file() and path.name not in waiting]
    return [f"left behind: {path.relative_to(settings.data)}" for path in left]


def list_logged_bugs(log: Path) -> list[str]:
    """List what the log says beside lines: the ends of tracebacks."""
    frame, found = "", []
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith('  File "'):
            frame = line.strip()
        elif frame and line.startswith("    "):
            frame += f" | {line.strip()}"
        elif frame:
            found.append(f"logged: {frame} | {line.strip()}")
            frame = ""
    return found


def summarize(run: LongRun) -> dict[str, Any]:
    """Return what was done and used; growth beyond what is allowed is noted as wrong."""
    used = {}
    server = run.chaos.steady.process.pid
    for name, of_it in (("server", lambda one: one == server), ("worker", lambda one: one != server)):
        uses = [use for use in run.uses if of_it(use.process)]
        if not uses:
            continue
        use = max(uses, key=lambda one: len(one.memory_bytes))
        figures = {}
        for unit, values in (("memory_bytes", use.memory_bytes), ("files", use.files)):
            early, late = _get_medians(values)
            figures[unit] = {"second_quarter": early, "last_quarter": late, "most": max(values)}
        used[name] = {"measured": len(use.memory_bytes), "processes": len(uses), **figures}
        early, late = _get_medians(use.memory_bytes)
        if len(use.memory_bytes) >= 100 and late > early * (1 + MAX_GROWTH) + MAX_GROWTH_BYTES:
            run.wrong.append(f"the {name}'s memory grows from {early / 1e6:.0f} to {late / 1e6:.0f} MB")
    return {
        "jobs": dict(run.done), "faults": dict(run.chaos.faults), "answers": dict(run.answers), "used": used,
        "wrong": run.wrong,
    }  # fmt: skip


def _get_medians(values: Sequence[int]) -> tuple[int, int]:
    quarter = max(1, len(values) // 4)
    return int(statistics.median(values[quarter : 2 * quarter] or values)), int(statistics.median(values[-quarter:]))


def main() -> None:
    """Print what was done and found as JSON; exit with 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", help="PostgreSQL in place of SQLite; its tables must be empty")
    parser.add_argument("--restart-database", help="command that kills the database and starts it again")
    parser.add_argument("--folder", type=Path, help="where data and log stay; by default they are removed")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "run" if asked.folder is None else asked.folder
        folder.mkdir(parents=True)
        _, summary = run_for(
            folder, asked.minutes, asked.seed, database=asked.database, restart_database=asked.restart_database
        )
    print(json.dumps(summary, indent=2))
    sys.exit(bool(summary["wrong"]))


if __name__ == "__main__":
    main()
