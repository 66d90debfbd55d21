"""Serve a load on a target: percentiles of what users wait for, and the largest load under limits."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tracekit.arrays import Floats
from tracekit.served.loop import Phase, Scheduler, ServedRequests, run_engine
from tracekit.served.requests import Requests, repeat_requests, spread_lengths
from tracekit.served.step_table import EngineStepTable, EngineStepTables

PERCENTILES = (50, 90, 95, 99)
MAX_RATE, RATE_STEPS = 1e6, 24
OVERLOAD = 0.9
"""Requests served over those that arrive, below which the queue grows."""
SECOND_US = 1e6
FRONT_END_ENDS = (0.0, 3.0)
"""What the front end may take over what it likely does, at the low and the high end. A judgement: it depends on the
client and on the machine's CPU."""
WAVES, MIN_REQUESTS, RATE_REQUESTS = 10, 50, 2000
"""Requests of a load: those at once so many times, as public benchmarks of serving take, at least; or of a rate."""


@dataclass(frozen=True, slots=True)
class Range:
    """A figure with its interval."""

    low: float
    likely: float
    high: float


@dataclass(frozen=True, slots=True)
class RequestLoad:
    """How requests come: so many at once, or so many a second, or else as recorded.

    Attributes:
        concurrency: Requests under way at any time; 0 where they come by a rate.
        rate: Requests a second, at random; 0 where so many are under way.
    """

    concurrency: int = 0
    rate: float = 0.0

    def split(self, groups: int) -> "RequestLoad":
        """Return the part of a group among some, at least one request at once."""
        return RequestLoad(-(-self.concurrency // groups), self.rate / groups)

    def count_parts(self, groups: int) -> float:
        """Count the groups that such parts make up: less than all where some have fewer requests."""
        return self.concurrency / self.split(groups).concurrency if self.concurrency else float(groups)


RECORDED = RequestLoad()


@dataclass(frozen=True, slots=True)
class Replicas:
    """Engines that prefill and engines that decode, apart.

    Attributes:
        prefill: Engines that prefill.
        decode: Engines that decode.
        transfer_us: Time in which the cache of a token moves from one to the other.
    """

    prefill: int
    decode: int
    transfer_us: float


@dataclass(frozen=True, slots=True)
class Latencies:
    """What users of a load wait for, at one speed of steps.

    Attributes:
        figures: Times in ms by ``ttft``, ``tpot``, ``itl``, ``e2e`` and, behind an underscore, mean or percentile;
            ``output_tokens_per_s``, ``total_tokens_per_s``, ``requests_per_s``, ``joules_per_token``.
        preemptions: How often a sequence lost its pages.
        is_overloaded: Whether requests come faster than they are served.
    """

    figures: Mapping[str, float]
    preemptions: int
    is_overloaded: bool


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """What users of a load wait for, with intervals."""

    load: RequestLoad
    figures: Mapping[str, Range]
    preemptions: int
    is_overloaded: bool

    @property
    def mean_requests(self) -> float:
        """Requests under way on average, those in the queue among them (Little's law)."""
        return self.figures["requests_per_s"].likely * self.figures["e2e_mean_ms"].likely / 1e3


@dataclass(frozen=True, slots=True)
class Pattern:
    """Requests of which a load takes as many as it needs.

    Attributes:
        requests: Their lengths, from the first on again where more are needed.
        spread: Fraction that a length may be shorter at random; None for none.
        count: Requests of a load; None for ten times those at once, or a fixed number of those that come by a rate.
    """

    requests: Requests
    spread: float | None = None
    count: int | None = None

    def make(self, load: RequestLoad) -> Requests:
        """Make the requests of a load."""
        if load == RECORDED:
            return self.requests.take(slice(self.count))
        count = self.count or (max(WAVES * load.concurrency, MIN_REQUESTS) if load.concurrency else RATE_REQUESTS)
        repeated = repeat_requests(self.requests, count)
        varied = spread_lengths(repeated, self.spread) if self.spread else repeated
        return varied.arrive_at(load.rate) if load.rate else varied


@dataclass(frozen=True)
class Simulation:
    """Requests and an engine, for whose loads the times are asked.

    Attributes:
        pattern: The requests.
        scheduler: How the engine forms its steps.
        tables: How long they take.
        gpus: GPUs that share the requests of an engine.
        idle_w: What each draws when it does nothing.
        replicas: Engines that prefill and decode apart; None for one that does both.
        groups: Batches under way at once, each of requests of its own and with the work of so many GPUs: of groups of
            them (attention data parallel), or of stages.
    """

    pattern: Pattern
    scheduler: Scheduler
    tables: EngineStepTables
    gpus: int
    idle_w: float
    replicas: Replicas | None = None
    groups: int = 1
    _kept: dict[RequestLoad, LoadAnswer] = field(default_factory=dict, init=False)

    @property
    def all_gpus(self) -> int:
        """GPUs of all engines."""
        return self.gpus * self.groups * self.engines

    @property
    def engines(self) -> int:
        """Number of engines."""
        return self.replicas.prefill + self.replicas.decode if self.replicas else 1

    def answer(self, load: RequestLoad) -> LoadAnswer:
        """Return what users of a load wait for."""
        if load not in self._kept:
            likely = self.serve(load, self.tables.likely)
            ends = [
                self.serve(load, table, front_end).figures
                for table, front_end in zip((self.tables.low, self.tables.high), FRONT_END_ENDS, strict=True)
            ]
            figures = {
                name: Range(*sorted((ends[0][name], value, ends[1][name]))) for name, value in likely.figures.items()
            }
            self._kept[load] = LoadAnswer(load, figures, likely.preemptions, likely.is_overloaded)
        return self._kept[load]

    def serve(self, load: RequestLoad, table: EngineStepTable, front_end: float = 1.0) -> Latencies:
        """Serve a load at one speed of steps, and of the front end over the likely one.

        One group's part of it is run, as each has a like one.
        """
        part, scheduler = load.split(self.groups), self.scheduler.scale_front_end(front_end)
        requests = self.pattern.make(part)
        if self.replicas is not None:
            return self._serve_apart(requests, load, table, scheduler, self.replicas)
        served = run_engine(requests, scheduler, table, part.concurrency)
        return self._summarise(served, served.last_us, load, served.joules, served.busy_us)

    def _serve_apart(
        self,
        requests: Requests,
        load: RequestLoad,
        table: EngineStepTable,
        scheduler: Scheduler,
        replicas: Replicas,
    ) -> Latencies:
        """Serve requests by engines that prefill, then by others that decode.

        Every n-th request goes to one of n alike engines: one of each kind is run, and its requests count for all.
        """
        prefilled = _run_replicas(requests, scheduler, table, replicas.prefill, "prefill")
        moved = replace(requests, arrival_us=prefilled.first_us + replicas.transfer_us * requests.input_tokens)
        order = np.argsort(moved.arrival_us, kind="stable")
        sorted_requests = Requests(moved.arrival_us[order], moved.input_tokens[order], moved.output_tokens[order])
        decoded = _run_replicas(sorted_requests, scheduler.scale_front_end(0.0), table, replicas.decode, "decode")
        last_us = np.empty_like(decoded.last_us)
        last_us[order] = decoded.last_us
        last_us = np.where(requests.output_tokens > 1, last_us, prefilled.first_us)
        joined = replace(decoded, requests=requests, arrival_us=requests.arrival_us, first_us=prefilled.first_us)
        return self._summarise(
            joined, last_us, load, prefilled.joules + decoded.joules, prefilled.busy_us + decoded.busy_us
        )

    def _summarise(
        self, served: ServedRequests, last_us: Floats, load: RequestLoad, joules: float, busy_us: float
    ) -> Latencies:
        requests = served.requests
        span_us = float(last_us.max() - served.arrival_us.min())
        following = np.maximum(requests.output_tokens - 1, 1)
        several = requests.output_tokens > 1
        times_us = {
            "ttft": served.first_us - served.arrival_us,
            "tpot": ((last_us - served.first_us) / following)[several],
            "e2e": last_us - served.arrival_us,
        }
        figures: dict[str, float] = {}
        for name, values in times_us.items():
            found = values if values.size else np.zeros(1)
            figures[f"{name}_mean_ms"] = float(found.mean()) / 1e3
            for percentile, value in zip(PERCENTILES, np.percentile(found, PERCENTILES), strict=True):
                figures[f"{name}_p{percentile}_ms"] = float(value) / 1e3
        for percentile in PERCENTILES:
            figures[f"itl_p{percentile}_ms"] = served.compute_gap_us(percentile) / 1e3
        output = float(requests.output_tokens.sum())
        a_second = SECOND_US * load.count_parts(self.groups) / span_us
        figures["output_tokens_per_s"] = a_second * output
        figures["total_tokens_per_s"] = a_second * (output + float(requests.input_tokens.sum()))
        figures["requests_per_s"] = a_second * requests.arrival_us.size
        idle_groups = self.groups / load.count_parts(self.groups) - 1
        idle_us = max(self.engines * span_us - busy_us, 0.0) + idle_groups * self.engines * span_us
        idle_joules = self.idle_w * idle_us / 1e6
        figures["joules_per_token"] = (joules + idle_joules) * self.gpus / output
        is_overloaded = bool(load.rate) and self._is_queue_growing(served)
        return Latencies(figures, served.preemptions, is_overloaded)

    def _is_queue_growing(self, served: ServedRequests) -> bool:
        """Return whether the last tenth of the requests waits far longer than the second."""
        waited, tenth = served.first_us - served.arrival_us, max(served.first_us.size // 10, 1)
        if waited.size <= tenth:
            return False
        arriving = float(served.arrival_us[-1] - served.arrival_us[0])
        grown = float(np.median(waited[-tenth:]) - np.median(waited[tenth : 2 * tenth]))
        return grown > (1 - OVERLOAD) * arriving


def _run_replicas(
    requests: Requests, scheduler: Scheduler, table: EngineStepTable, replicas: int, phase: Phase
) -> ServedRequests:
    """Run alike engines, each with every n-th request, and return all requests in their order."""
    parts = [
        run_engine(
            requests.take(slice(at, None, replicas)),
            scheduler,
            table,
            phase=phase,
        )
        for at in range(min(replicas, requests.arrival_us.size))
    ]
    first_us, last_us = np.empty(requests.arrival_us.size), np.empty(requests.arrival_us.size)
    for at, part in enumerate(parts):
        first_us[at::replicas], last_us[at::replicas] = part.first_us, part.last_us
    return replace(
        parts[0],
        requests=requests,
        arrival_us=requests.arrival_us,
        first_us=first_us,
        last_us=last_us,
        gap_counts=np.sum([part.gap_counts for part in parts], axis=0),
        steps=sum(part.steps for part in parts),
        preemptions=sum(part.preemptions for part in parts),
        busy_us=sum(part.busy_us for part in parts),
        joules=sum(part.joules for part in parts),
    )


def find_largest_load(meets: Callable[[RequestLoad], bool], *, by_rate: bool, most: int) -> RequestLoad | None:
    """Find the largest load that meets limits, which larger ones don't.

    Args:
        meets: Whether a load meets them.
        by_rate: Whether loads are requests a second; else requests at once.
        most: Requests at once at most.

    Returns:
        The load; None where even the smallest one doesn't meet them.
    """
    if by_rate:
        low, high = 1e-3, MAX_RATE
        if not meets(RequestLoad(rate=low)):
            return None
        for _ in range(RATE_STEPS):
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if meets(RequestLoad(rate=middle)) else (low, middle)
        return RequestLoad(rate=low)
    if not meets(RequestLoad(1)):
        return None
    least, beyond = 1, 2
    while beyond <= most and meets(RequestLoad(beyond)):
        least, beyond = beyond, 2 * beyond
    beyond = min(beyond, most + 1)
    while beyond - least > max(least // 50, 1):
        middle = (least + beyond) // 2
        least, beyond = (middle, beyond) if meets(RequestLoad(middle)) else (least, middle)
    return RequestLoad(least)


def list_curve_loads(most: int) -> Iterator[RequestLoad]:
    """Yield the loads of the curve of throughput over latency: requests at once, doubling."""
    concurrency = 1
    while concurrency <= most:
        yield RequestLoad(concurrency)
        concurrency *= 2
