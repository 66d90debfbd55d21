"""The longest sequence that fits, of measures that a function gives."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from predictors import load_gpu
from tests.codes import has_code
from tracekit.capturing import longest_sequence
from tracekit.capturing.longest_sequence import find_most
from tracekit.comm.cluster import USABLE_MEMORY_FRACTION
from tracekit.errors import RequestError
from tracekit.request.options import ExportRequest
from tracekit.request.program_options import ProgramOptions

GROWING: dict[str, Callable[[int], float]] = {
    "linear": lambda steps: 10 + 3 * steps,
    "flat at its begin": lambda steps: max(100, 3 * steps),
    "quadratic": lambda steps: 5 + steps + steps**2 / 50,
    "in stairs": lambda steps: 10 + 7 * (steps // 9),
}


@pytest.mark.parametrize("kind", GROWING)
@pytest.mark.parametrize(("room", "most"), [(99.0, 1), (150.0, 4000), (1000.0, 4000), (1e9, 500), (9.0, 64)])
def test_the_found_number_fits_and_the_next_does_not(kind: str, room: float, most: int) -> None:
    tried: list[int] = []

    def measure(steps: int) -> float:
        tried.append(steps)
        return GROWING[kind](steps)

    found = find_most(measure, room, most)
    assert found == max((steps for steps in range(1, most + 1) if GROWING[kind](steps) <= room), default=0)
    assert len(tried) == len(set(tried)) <= 20
    if kind == "linear":
        assert len(tried) <= 6


def test_what_is_no_length_is_refused() -> None:
    assert (ProgramOptions(seq="128").tokens, ProgramOptions(seq=128).tokens, ProgramOptions(seq="max").tokens) == (
        128,
        128,
        None,
    )
    for text in ("most", "0", "-3", "1.5"):
        with pytest.raises(RequestError, check=has_code("seq-malformed")):
            ProgramOptions(seq=text)


def test_of_several_gpus_the_smallest_sets_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 tokens take 1 GB: an H100 has room for more of them than an L4, whose usable 24 GiB hold 24."""
    monkeypatch.setattr(longest_sequence, "_measure_on", lambda *_: lambda steps: steps * 1e9)
    program = SimpleNamespace(dlrm=None, max_tokens=1 << 20)
    found = [
        longest_sequence.find_longest_sequence(program, None, ExportRequest(gpu=gpus))  # type: ignore[arg-type]
        for gpus in (("h100-sxm", "l4"), ("l4",), ("h100-sxm",))
    ]
    assert found[0] == found[1] == 64 * int(USABLE_MEMORY_FRACTION * load_gpu("l4").memory_bytes / 1e9)
    assert found[2] > 3 * found[0]
