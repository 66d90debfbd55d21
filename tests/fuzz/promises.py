"""What a prediction promises, whatever the trace holds: checked on the JSON that ``tracekit predict --json`` prints."""

import json
import math
from collections.abc import Iterator
from typing import Any

from tests.fuzz.target import BrokenPromiseError
from tracekit.messages.catalogue import CATALOGUE

MAX_REFUTED = 1000
"""How many times a prediction may be off the measurement before a doubt has to be named."""

DOUBTS = frozenset(("gpu-unlike-known", "edits-applied", "batch-scaled", "durations-below-bound", "steps-overlap"))
"""Codes that say that a prediction is doubtful, and why."""

SIGNED = frozenset(
    {
        "error_pct",
        "saves_us",
        "saving_us",
        "clock_ahead_us",
        "beyond_us",
        "device",
        "stream",
        "first_event",
        "worst_pct",
        "bias_pct",
    }
)
"""Numbers that may be below zero: differences, and ids as the trace has them."""

FREE = frozenset({"values"})
"""Keys of what messages quote, as it stands in the trace."""


def read_json(text: bytes) -> Any:
    """Read strict JSON.

    Raises:
        BrokenPromiseError: It is none, or holds NaN or an infinity.
    """

    def refuse(word: str) -> None:
        raise BrokenPromiseError(f"JSON holds {word}", text[:4000].decode(errors="replace"))

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise BrokenPromiseError("the output is no JSON", error) from error


def list_numbers(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the numbers of a document, each with the keys that lead to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in FREE:
                yield from list_numbers(item, (*at, key))
    elif isinstance(value, list):
        for item in value:
            yield from list_numbers(item, at)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield at, value


def check_numbers(document: Any) -> None:
    """Check that no number is infinite, or negative where that means nothing.

    Raises:
        BrokenPromiseError: One is.
    """
    for at, number in list_numbers(document):
        name = ".".join(at)
        if not math.isfinite(number):
            raise BrokenPromiseError(f"{name} is not finite", number)
        if number < 0 and at[-1] not in SIGNED:
            raise BrokenPromiseError(f"{name} is negative", number)


def check_prediction(document: Any) -> None:
    """Check one prediction.

    Raises:
        BrokenPromiseError: It breaks a promise.
    """
    check_numbers(document)
    source, events = document["source"], document["events"]
    require(source["step_time_us"] > 0, "the measured step takes time", source)
    doubts = list_codes(document["warnings"])
    check_parts(source, "source", doubts)
    counted = [one for one in events["groups"] if one["unit"] == "events" and one["effect"] in ("read", "dropped")]
    require(sum(one["count"] for one in counted) == events["events"], "the ledger adds up", events)
    for target in document["targets"]:
        check_parts(target, "target", doubts | list_codes(target["notes"]))
        require(target["low_us"] <= target["step_time_us"] <= target["high_us"], "the step is in its interval", target)
        require(
            math.isclose(target["speedup"], source["step_time_us"] / target["step_time_us"], rel_tol=1e-2),
            "the speedup is the ratio of the steps",
            (source, target),
        )
        coverage = target["coverage"]
        require(math.isclose(sum(coverage.values()), 100, abs_tol=0.2), "coverage adds up to 100", coverage)
        for note in target["notes"]:
            check_message(note)
    for message in document["warnings"]:
        check_message(message)
    check_sizes(document)


def list_codes(messages: Any) -> set[str]:
    """List the codes of messages."""
    return {message["code"] for message in messages}


def check_parts(step: Any, name: str, doubts: set[str]) -> None:
    """Check that busy and idle time are the step, unless steps of several ranks overlap."""
    whole = step["kernel_time_us"] + step["idle_us"]
    is_whole = math.isclose(whole, step["step_time_us"], rel_tol=0.011, abs_tol=0.01)
    require(is_whole or "steps-overlap" in doubts, f"{name}: busy and idle are the step", step)
    require(step["exposed_comm_us"] <= step["kernel_time_us"] * 1.001 + 0.01, f"{name}: exposed is part of busy", step)


def check_message(message: Any) -> None:
    """Check that a message is one of the catalogue."""
    require(message["code"] in CATALOGUE, "messages are in the catalogue", message)


def check_sizes(document: Any) -> None:
    """Check that what the measurement refutes is doubted."""
    doubts = list_codes(document["warnings"])
    for kernel in document["kernels"]:
        require(
            (kernel["utilization"] or 0) < 100 * MAX_REFUTED or bool(doubts & DOUBTS),
            "a kernel far faster than its work takes is doubted",
            (kernel, sorted(doubts)),
        )
    source = document["source"]
    for number, target in enumerate(document["targets"]):
        named = doubts | list_codes(target["notes"])
        ratio = target["step_time_us"] / source["step_time_us"]
        require(
            1 / MAX_REFUTED < ratio < MAX_REFUTED or bool(named & DOUBTS),
            "a step far off the measured one is doubted",
            (ratio, sorted(named)),
        )
        for kernel in document["kernels"]:
            measured, predicted = kernel["time_us"], kernel["predicted_us"][number]
            if max(measured, predicted) < 1 or not measured:
                continue
            require(
                1 / MAX_REFUTED < max(predicted, 1) / max(measured, 1) < MAX_REFUTED or bool(named & DOUBTS),
                "a kernel far off the measured one is doubted",
                (kernel, sorted(named)),
            )


def require(holds: bool, promise: str, seen: object) -> None:
    """Raise an error that names a promise unless it holds."""
    if not holds:
        raise BrokenPromiseError(f"not: {promise}", seen)
