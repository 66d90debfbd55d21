"""Give one number to the steps of several ranks that belong together.

Recorded: newer traces have an id of each collective, or its number in its process group, and one step's collectives
are the same step's on every rank. Semantics: every rank calls the collectives of a group in the same order, so steps
that belong together have the same collectives. Where those are alike in several steps, the times of the steps decide,
if the clocks of the ranks are near enough, and else the numbers that the ranks gave them.
"""

from collections.abc import Sequence
from enum import Enum, auto

import numpy as np
import polars as pl

from tracekit.arrays import Bools, Ints
from tracekit.graph.ranks.match import add_match_keys
from tracekit.messages import Message
from tracekit.messages import traces as messages

MIN_EQUAL_FRACTION = 0.5
"""Least part of the steps whose collectives have to agree: the first and last may be recorded in part."""

MAX_STEPS_APART = 0.5
"""Steps that belong together start within this part of a step of each other, on clocks that agree."""


class _Evidence(Enum):
    """What joined a rank's steps to the first rank's."""

    COLLECTIVES = auto()
    TIMES = auto()
    NUMBERS = auto()


def align_steps(
    numbers: Sequence[int], kernels: Sequence[pl.DataFrame], steps: Sequence[pl.DataFrame]
) -> tuple[list[pl.DataFrame], list[pl.DataFrame], tuple[Message, ...]]:
    """Renumber the steps of every rank as the first rank numbers those that they belong to.

    Each rank's kernel table has ``step`` as the rank numbers it; its steps are in order.

    Returns:
        Both tables of every rank, renumbered, and messages: what joined the steps of ranks that number them
            differently, and ranks of whose steps only the numbers tell.
    """
    first, *_ = keyed = [add_match_keys(each.with_columns(rank=pl.lit(0))) for each in kernels]
    renumbered, retold = [kernels[0]], [steps[0]]
    by: dict[_Evidence, list[int]] = {evidence: [] for evidence in _Evidence}
    for rank, rows, table, own in zip(numbers[1:], keyed[1:], kernels[1:], steps[1:], strict=True):
        shift, evidence = _find_shift(rows, own, first, steps[0])
        new = _number_shifted(own, steps[0], shift)
        same = new.equals(own["step"])
        if not same or evidence is _Evidence.NUMBERS:
            by[evidence].append(rank)
        step = pl.col("step")
        renumbered.append(table if same else table.with_columns(step.replace_strict(own["step"], new, default=None)))
        retold.append(own if same else own.with_columns(new))
    said = (
        messages.STEPS_RENUMBERED(ranks=by[_Evidence.COLLECTIVES]),
        messages.STEPS_JOINED_BY_TIME(ranks=by[_Evidence.TIMES]),
        messages.STEPS_JOINED_BY_NUMBER(ranks=by[_Evidence.NUMBERS]),
    )
    return renumbered, retold, tuple(message for message, ranks in zip(said, by.values(), strict=True) if ranks)


def _find_shift(
    rows: pl.DataFrame, own: pl.DataFrame, first_rows: pl.DataFrame, first: pl.DataFrame
) -> tuple[int, _Evidence]:
    """Find the place of a rank's first step among the first rank's; negative if it comes before them."""
    shared = _find_shared_shift(rows, own, first_rows, first)
    if shared is not None:
        return shared, _Evidence.COLLECTIVES
    shifts = np.arange(1 - own.height, first.height)
    if shifts.size == 1:
        return 0, _Evidence.COLLECTIVES
    alike = _flag_alike(shifts, rows, own, first_rows, first)
    if np.count_nonzero(alike) == 1:
        return int(shifts[alike][0]), _Evidence.COLLECTIVES
    possible = shifts[alike] if alike.any() else shifts
    nearest, is_near = _find_nearest(possible, own, first)
    if is_near:
        return nearest, _Evidence.TIMES
    by_number = _find_shift_by_number(own, first)
    if by_number is not None and by_number in possible:
        return by_number, _Evidence.NUMBERS
    return int(possible[np.argmin(np.abs(possible))]), _Evidence.NUMBERS


def _find_shared_shift(
    rows: pl.DataFrame, own: pl.DataFrame, first_rows: pl.DataFrame, first: pl.DataFrame
) -> int | None:
    """Return the shift that most collectives with ids have that both ranks recorded; ``None`` without any."""
    places = [
        each.filter(~pl.col("by_order")).join(_list_places(steps), on="step").select("key", "occurrence", "place")
        for each, steps in ((rows, own), (first_rows, first))
    ]
    both = places[0].join(places[1], on=("key", "occurrence"), suffix="_first")
    shifts = both.select(shift=pl.col("place_first") - pl.col("place"))["shift"]
    return None if shifts.is_empty() else int(shifts.mode().min())  # type: ignore[arg-type]


def _list_places(steps: pl.DataFrame) -> pl.DataFrame:
    return steps.select("step", place=pl.int_range(pl.len()))


def _flag_alike(
    shifts: Ints, rows: pl.DataFrame, own: pl.DataFrame, first_rows: pl.DataFrame, first: pl.DataFrame
) -> Bools:
    """Return which shifts put steps with the same collectives together; none if the ranks share no group."""
    common = rows.select("group").unique().join(first_rows.select("group").unique(), on="group")
    if common.is_empty():
        return np.zeros(shifts.size, np.bool_)
    words = pl.concat(
        [
            _describe_steps(each.join(common, on="group", how="semi"), s)
            for each, s in ((rows, own), (first_rows, first))
        ]
    )
    mine, theirs = words[: own.height].to_numpy(), words[own.height :].to_numpy()
    equal = [
        np.mean(mine[max(-shift, 0) : theirs.size - shift] == theirs[max(shift, 0) : shift + mine.size])
        for shift in shifts.tolist()
    ]
    return np.asarray(equal) >= MIN_EQUAL_FRACTION


def _describe_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Describe each step by its collectives: in order where groups are named, else sorted."""
    order = pl.when("named").then("start_ns").otherwise(0)
    word = pl.format("{} {} {}", "group", "kind", pl.col("bytes").fill_null(-1))
    told = rows.sort("group", order, "kind", "bytes").group_by("step", maintain_order=True).agg(word.str.join("\n"))
    joined = steps.select("step").join(told, on="step", how="left", maintain_order="left")
    return joined[joined.columns[-1]].fill_null("").alias("word")


def _find_nearest(shifts: Ints, own: pl.DataFrame, first: pl.DataFrame) -> tuple[int, bool]:
    """Return the shift that puts the steps nearest in time, and whether they are near enough."""
    mine, theirs = own["start_ns"].to_numpy(), first["start_ns"].to_numpy()
    apart = np.array(
        [
            np.median(np.abs(mine[max(-shift, 0) : theirs.size - shift] - theirs[max(shift, 0) : shift + mine.size]))
            for shift in shifts.tolist()
        ]
    )
    best = np.lexsort((np.abs(shifts), apart))[0]
    length = np.median((first["end_ns"] - first["start_ns"]).to_numpy())
    return int(shifts[best]), bool(apart[best] < MAX_STEPS_APART * length)


def _find_shift_by_number(own: pl.DataFrame, first: pl.DataFrame) -> int | None:
    """Return the shift at which most steps have the recorded numbers of the first rank's; ``None`` without any."""
    label = pl.coalesce("label", "step").alias("label")
    mine, theirs = (steps.select(label, place=pl.int_range(pl.len())) for steps in (own, first))
    shifts = mine.join(theirs, on="label", suffix="_first").select(pl.col("place_first") - pl.col("place")).to_series()
    return None if shifts.is_empty() else min(shifts.mode().to_list(), key=lambda shift: (abs(shift), shift))


def _number_shifted(own: pl.DataFrame, first: pl.DataFrame, shift: int) -> pl.Series:
    """Number a rank's steps as the first rank does, and on from its lowest and highest number."""
    place, numbers = np.arange(own.height) + shift, first["step"].to_numpy()
    inside = np.clip(place, 0, first.height - 1)
    before, after = numbers.min() + place, numbers.max() + place - (first.height - 1)
    return pl.Series("step", np.where(place < 0, before, np.where(place > inside, after, numbers[inside])))
