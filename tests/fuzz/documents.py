"""Cases made of a good document and edits of it: small, and what is hostile about them is all that they say.

Hypothesis makes them rather than atheris: random bytes hardly ever are a document, and many edits shrink to the
one that matters.
"""

import copy
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

BASES = Path(__file__).with_name("bases")
MAX_EDITS = 8

HOSTILE_NUMBERS: list[Any] = [
    *(0, 1, -1, 2, 7, 1000, -0.0, 0.5, -3.25, 1e-300, 1e-9, 1e6, 1e9, 1e12, 1e15, 1e18, 1e300, -1e300),
    *(float("nan"), float("inf"), float("-inf")),
    *(2**k + d for k in (16, 31, 32, 53, 62, 63, 64, 70) for d in (-1, 0)),
    *(-(2**k) for k in (31, 40, 62, 63, 70)),
    int("9" * 400),
]
HOSTILE_TEXTS = [
    *("", " ", "0", "-1", "1.5", "NaN", "None", "é", "名", "\x1b]0;pwn\x07", "a\nb", "\x00", "\ud800", "\u202e"),
    *("x" * 5000, "9" * 5000, "=1+1", "<script>", "`", "|", "[bold]", "{0}", "%s", "../../x", "ProfilerStep#"),
    *("ProfilerStep#99999999999", "ProfilerStep#-1", "[1, 2", "[[1], [2]]", '["a"]', "null", "float", "c10::Half"),
]
HOSTILE_OTHERS: list[Any] = [None, True, False, [], {}, [[]], [None], [1, "a"], {"a": 1}, [[1, 2], 3], [[[[1]]]], [{}]]

SHAPES = st.lists(st.lists(st.sampled_from([-1, 0, 1, 2, 3, 7, 64, 1000, 2**20, 2**31, 2**62]), max_size=6), max_size=5)
"""Like ``Input Dims``."""

values: SearchStrategy[Any] = st.one_of(
    st.sampled_from(HOSTILE_NUMBERS),
    st.sampled_from(HOSTILE_TEXTS),
    st.sampled_from(HOSTILE_OTHERS),
    st.integers(-10, 10_000),
    st.floats(-1e6, 1e9),
    st.lists(st.sampled_from(HOSTILE_NUMBERS), min_size=1, max_size=4),
    SHAPES,
)

FACTORS = [0, -1, 1e-6, 1e-3, 0.5, 2, 1e3, 1e6, 1e9]

Edit = dict[str, Any]
Place = tuple[int | str, ...]


@cache
def load_base(name: str) -> Any:
    """Read a good document, which nobody may change.

    Args:
        name: A file in ``BASES``, or the path of another, which may be compressed.
    """
    content = (BASES / name).read_bytes()
    return json.loads(gzip.decompress(content) if name.endswith(".gz") else content, strict=False)


def apply_edits(document: Any, edits: Sequence[Edit]) -> Any:
    """Return a copy of a document with edits.

    Args:
        document: As JSON has it.
        edits: Each with ``at``, the way to a value: keys and indices, or in a list of events a category for all events
            of it. ``value`` replaces that value, ``times`` multiplies the numbers in it, ``copy`` takes the value of
            another place, ``repeat`` adds an item of a list so many times; without any of them it is removed.
    """
    document = copy.deepcopy(document)
    for edit in edits:
        for parent, key in find_places(document, edit["at"]):
            apply_edit(document, parent, key, edit)
    return document


def apply_edit(document: Any, parent: Any, key: Any, edit: Edit) -> None:
    """Apply an edit to one item of a list or mapping of the document."""
    is_there = key in parent if isinstance(parent, dict) else key < len(parent)
    if "value" in edit:
        if is_there or isinstance(parent, dict):
            parent[key] = copy.deepcopy(edit["value"])
    elif "copy" in edit:
        for source, name in [*find_places(document, edit["copy"])][:1]:
            if name in source if isinstance(source, dict) else name < len(source):
                parent[key] = copy.deepcopy(source[name])
    elif not is_there:
        return
    elif "times" in edit:
        parent[key] = scale_numbers(parent[key], edit["times"])
    elif "repeat" in edit:
        if isinstance(parent, list):
            parent.extend(copy.deepcopy(parent[key]) for _ in range(edit["repeat"]))
    else:
        del parent[key]


def scale_numbers(value: Any, factor: float) -> Any:
    """Multiply a number, or all numbers of a list."""
    if isinstance(value, list):
        return [scale_numbers(item, factor) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1000:
        return value * factor
    return value


def find_places(document: Any, at: Sequence[int | str]) -> Iterator[tuple[Any, Any]]:
    """Yield the lists or mappings that hold what a path leads to, each with its index or key."""
    if not at:
        return
    step, rest = at[0], at[1:]
    keys: list[Any] = []
    if isinstance(document, list):
        if isinstance(step, int):
            keys = [step] if step < len(document) else []
        else:
            keys = [n for n, item in enumerate(document) if isinstance(item, dict) and item.get("cat") == step]
    elif isinstance(document, dict) and isinstance(step, str):
        keys = [step] if step in document or not rest else []
    for key in reversed(keys):
        if rest:
            yield from find_places(document[key], rest)
        else:
            yield document, key


def list_places(document: Any, at: Place = ()) -> Iterator[Place]:
    """Yield the way to each value; of events also that to the values of all of a category."""
    if isinstance(document, Mapping):
        items: Iterator[tuple[Any, Any]] = iter(document.items())
    elif isinstance(document, list):
        items = iter(enumerate(document))
    else:
        return
    for key, value in items:
        yield (*at, key)
        yield from list_places(value, (*at, key))
        if isinstance(document, list) and isinstance(value, Mapping) and isinstance(value.get("cat"), str):
            yield (*at, value["cat"])
            yield from list_places(value, (*at, value["cat"]))


@cache
def make_edits(base: str, added: Place = ()) -> SearchStrategy[list[Edit]]:
    """Return the strategy of edits of a good document.

    Args:
        base: Its name.
        added: Keys that any event's arguments may get.
    """
    return make_document_edits(load_base(base), added)


def make_document_edits(document: Any, added: Place = ()) -> SearchStrategy[list[Edit]]:
    """Return the strategy of edits of a document; ``added`` as for :func:`make_edits`."""
    found = dict.fromkeys(list_places(document))
    several = [place for place in found if any(is_category(place, step) for step in range(1, len(place)))]
    for_one, for_all = pick([*found]), pick(several or [*found])
    places = st.one_of(for_one, for_all, for_all)
    if added:
        arguments = [place for place in found if place[-1] == "args"]
        places |= st.builds(lambda place, key: (*place, key), pick(arguments), st.sampled_from(added))
    edit = st.one_of(
        st.builds(lambda at, value: {"at": [*at], "value": value}, places, values),
        st.builds(lambda at, value: {"at": [*at], "value": value}, places, values),
        st.builds(lambda at, factor: {"at": [*at], "times": factor}, for_all, st.sampled_from(FACTORS)),
        st.builds(lambda at, other: {"at": [*at], "copy": [*other]}, for_one, for_one),
        st.builds(lambda at, times: {"at": [*at], "repeat": times}, for_one, st.integers(1, 3)),
        st.builds(lambda at: {"at": [*at]}, st.one_of(for_one, for_all)),
    )
    return st.lists(edit, min_size=1, max_size=MAX_EDITS)


def is_category(place: Place, step: int) -> bool:
    """Return whether a step of a path names a category of events, rather than a key or an index."""
    return place[step - 1] == "traceEvents" and isinstance(place[step], str)


def pick(places: Sequence[Place]) -> SearchStrategy[Place]:
    """Return the strategy of one of many places; ``sampled_from`` would show all of them where a test fails."""
    return st.integers(0, len(places) - 1).map(places.__getitem__)


def dump_case(case: Any) -> bytes:
    """Write a case as JSON, an edit a line."""
    if not isinstance(case, dict) or "edits" not in case:
        return (json.dumps(case, indent=1) + "\n").encode()
    head = {key: value for key, value in case.items() if key != "edits"}
    lines = ",\n".join(f"  {json.dumps(edit)}" for edit in case["edits"])
    return f'{json.dumps(head)[:-1]}, "edits": [\n{lines}\n]}}\n'.encode()
