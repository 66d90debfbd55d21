"""What users ask of an engine: when requests arrive, and their lengths."""

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from predictors.given_files import describe_failure, read_regular_file
from tracekit.arrays import Floats, Ints
from tracekit.bounds import MAX_LENGTHS_BYTES
from tracekit.errors import RequestError
from tracekit.messages import serving as messages

ARRIVAL_SEED, LENGTH_SEED = 62, 63
"""Of the times between requests and of their lengths, so that an answer is the same each time."""
MAX_REQUESTS = 1_000_000
MAX_ARRIVAL_S = 1e11
"""Of times in seconds, also since 1970; those in milliseconds since then exceed it."""
ARRIVAL = "arrival"


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in the order in which they are sent.

    Attributes:
        arrival_us: When each is sent; of no meaning where each waits for another to end.
        input_tokens: Tokens of the prompt, 1 or more.
        output_tokens: Tokens of the answer, 1 or more.
    """

    arrival_us: Floats
    input_tokens: Ints
    output_tokens: Ints

    @property
    def are_recorded(self) -> bool:
        """Whether the times at which they are sent are told."""
        return bool(self.arrival_us.any())

    @property
    def longest(self) -> int:
        """Most tokens of a request, prompt and answer."""
        return int((self.input_tokens + self.output_tokens).max())

    def take(self, every: slice) -> "Requests":
        """Return some of the requests."""
        return Requests(
            self.arrival_us[every].copy(), self.input_tokens[every].copy(), self.output_tokens[every].copy()
        )

    def arrive_at(self, rate: float) -> "Requests":
        """Return the requests as they arrive independently of each other, ``rate`` a second."""
        gaps = np.random.default_rng(ARRIVAL_SEED).exponential(1e6 / rate, self.arrival_us.size)
        return replace(self, arrival_us=np.cumsum(gaps) - gaps[0])


def make_requests(count: int, input_tokens: int, output_tokens: int) -> Requests:
    """Make requests of equal lengths that all arrive at once."""
    return Requests(np.zeros(count), np.full(count, input_tokens), np.full(count, output_tokens))


def spread_lengths(requests: Requests, spread: float) -> Requests:
    """Return requests whose lengths lie evenly between those given and a fraction ``spread`` less."""
    count = requests.arrival_us.size
    drawn = np.random.default_rng(LENGTH_SEED).random((2, count)) * spread
    lengths = (requests.input_tokens, requests.output_tokens)
    shorter = [
        np.maximum(np.rint(one * (1 - part)), 1).astype(np.int64) for one, part in zip(lengths, drawn, strict=True)
    ]
    return Requests(requests.arrival_us, *shorter)


def repeat_requests(requests: Requests, count: int) -> Requests:
    """Return as many requests, in order and from the first on again, that all arrive at once."""
    place = np.arange(count) % requests.arrival_us.size
    return Requests(np.zeros(count), requests.input_tokens[place], requests.output_tokens[place])


def read_lengths(path: str) -> Requests:
    """Read a CSV of requests with the columns ``input`` and ``output``, in tokens, and maybe ``arrival``, in seconds.

    Raises:
        RequestError: It can't be read, has no such columns, no rows, a length below 1, or arrivals that go back.
    """
    try:
        text = read_regular_file(Path(path), MAX_LENGTHS_BYTES).decode("utf-8")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (OSError, ValueError, csv.Error) as error:
        raise RequestError(messages.LENGTHS_UNREADABLE(path=path, reason=describe_failure(error))) from error
    try:
        lengths = [np.array([int(row[name]) for row in rows], np.int64) for name in ("input", "output")]
        arrival_s = np.array([float(row[ARRIVAL]) for row in rows]) if rows and ARRIVAL in rows[0] else None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RequestError(messages.LENGTHS_MALFORMED(path=path)) from error
    if not rows or len(rows) > MAX_REQUESTS or min(int(one.min()) for one in lengths) < 1:
        raise RequestError(messages.LENGTHS_MALFORMED(path=path))
    if arrival_s is None:
        return Requests(np.zeros(len(rows)), *lengths)
    if not (np.abs(arrival_s) <= MAX_ARRIVAL_S).all() or (np.diff(arrival_s) < 0).any():
        raise RequestError(messages.LENGTHS_MALFORMED(path=path))
    return Requests(1e6 * (arrival_s - arrival_s[0]), *lengths)
