"""Loads on an engine, and the largest one under limits."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.served.test_loop import PACE, ROOMY, make_table
from tracekit.errors import RequestError
from tracekit.messages.model import Template
from tracekit.messages.predictions import PACE_BY_CPU, PACE_BY_GPU, PACE_LIKELY_BY_CPU, PACE_LIKELY_BY_GPU
from tracekit.prediction.notes import describe_pace
from tracekit.served.requests import make_requests, read_lengths
from tracekit.served.simulate import RECORDED, Pattern, Replicas, RequestLoad, Simulation, find_largest_load
from tracekit.served.step_table import EngineStepTables

TABLE = make_table()


def simulate(**changes: object) -> Simulation:
    """Simulate requests of 500 and 5 tokens, at half, once and twice the time of each step."""
    tables = EngineStepTables(TABLE.scale(0.5), TABLE, TABLE.scale(2.0), PACE)
    made = Simulation(Pattern(make_requests(1, 500, 5), count=20), ROOMY, tables, gpus=2, idle_w=100.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_figures_have_the_ends_of_the_steps() -> None:
    """Alone, a prompt takes 1,000 + 2 x 500 us, and a token 1,010 us and what the cache holds."""
    figures = simulate().answer(RequestLoad(concurrency=1)).figures
    ttft, tpot = figures["ttft_p50_ms"], figures["tpot_mean_ms"]
    assert (ttft.low, ttft.likely, ttft.high) == pytest.approx((1.0, 2.0, 4.0))
    token_ms = (1010 + 0.01 * np.mean([500, 501, 502, 503])) / 1e3
    assert (tpot.low, tpot.likely, tpot.high) == pytest.approx((token_ms / 2, token_ms, 2 * token_ms))
    whole_ms = 2.0 + 4 * token_ms
    assert figures["output_tokens_per_s"].likely == pytest.approx(5e3 / whole_ms)
    # The steps take 0.1 mJ a us of each of two GPUs.
    assert figures["joules_per_token"].likely == pytest.approx(2 * whole_ms * 1e3 / 1e4 / 5)


def test_engines_apart_take_a_prompt_then_its_answer() -> None:
    """The cache of 500 tokens moves in 500 us; only then come tokens, so those of a request wait for that."""
    apart = simulate(replicas=Replicas(1, 1, 1.0))
    assert apart.all_gpus == 4
    figures = apart.answer(RequestLoad(rate=0.001)).figures
    assert figures["ttft_p50_ms"].likely == pytest.approx(2.0)
    assert figures["e2e_p50_ms"].likely == pytest.approx(2.0 + 0.5 + 4 * 1.015, rel=0.001)


def test_groups_share_a_load() -> None:
    """Two groups of two GPUs take half of it each; of three requests at once, one group has one and the other two."""
    alone, both = simulate(), simulate(groups=2)
    assert both.all_gpus == 4
    one, two = alone.answer(RequestLoad(concurrency=1)).figures, both.answer(RequestLoad(concurrency=2)).figures
    assert two["tpot_mean_ms"] == one["tpot_mean_ms"]
    assert two["output_tokens_per_s"].likely == pytest.approx(2 * one["output_tokens_per_s"].likely)
    assert two["joules_per_token"] == one["joules_per_token"]
    slow, fast = alone.answer(RequestLoad(rate=10)).figures, both.answer(RequestLoad(rate=20)).figures
    assert fast["e2e_p50_ms"] == slow["e2e_p50_ms"]
    idle = 100.0 * both.answer(RequestLoad(concurrency=1)).figures["e2e_mean_ms"].likely / 1e3
    lone = both.answer(RequestLoad(concurrency=1)).figures["joules_per_token"].likely
    assert lone == pytest.approx(one["joules_per_token"].likely + 2 * idle / 5)
    assert RequestLoad(concurrency=3).split(2) == RequestLoad(concurrency=2)
    assert RequestLoad(concurrency=3).count_parts(2) == 1.5


def test_an_engine_that_waits_for_the_other_draws_idle_power() -> None:
    """One request keeps one of two engines busy at a time; both draw 100 W, busy or not, until its last token."""
    apart = simulate(replicas=Replicas(1, 1, 1.0), pattern=Pattern(make_requests(1, 500, 5), count=1))
    figures = apart.answer(RequestLoad(rate=1.0)).figures
    busy_ms = 2.0 + 4 * 1.01 + 0.00001 * (500 + 501 + 502 + 503)
    idle_ms = 2 * (busy_ms + 0.5) - busy_ms
    # Of two GPUs each, for five tokens.
    assert figures["joules_per_token"].likely == pytest.approx((0.1 * busy_ms + 0.1 * idle_ms) * 2 / 5)


@pytest.mark.parametrize("most", [1, 7, 100, 1000])
def test_the_largest_number_at_once_is_found(most: int) -> None:
    found = find_largest_load(lambda load: load.concurrency <= most, by_rate=False, most=512)
    assert found is not None
    assert found.concurrency == pytest.approx(min(most, 512), rel=0.02)


def test_the_largest_rate_is_found() -> None:
    found = find_largest_load(lambda load: load.rate <= 3.7, by_rate=True, most=0)
    assert found is not None
    assert found.rate == pytest.approx(3.7, rel=1e-5)
    assert find_largest_load(lambda load: False, by_rate=True, most=0) is None


def test_a_queue_that_grows_is_told() -> None:
    """One at a time takes about 6 ms, so 100 a second are served and 300 aren't."""
    one_by_one = simulate(
        scheduler=replace(ROOMY, max_sequences=1), pattern=Pattern(make_requests(1, 500, 5), count=300)
    )
    assert not one_by_one.answer(RequestLoad(rate=100)).is_overloaded
    assert one_by_one.answer(RequestLoad(rate=300)).is_overloaded


def test_requests_that_end_together_wait_for_each_other_by_the_front_end() -> None:
    """Two prompts of 500 tokens share a first step of 3,000 us; 5 ms later two more are there, with or without them.

    Without a front end the second pair shares a step, too. With one, both pairs come 5 ms after they were sent.
    """
    load, pattern = RequestLoad(concurrency=2), Pattern(make_requests(1, 500, 3), count=4)
    at_once = simulate(pattern=pattern).serve(load, TABLE).figures
    behind = simulate(pattern=pattern, scheduler=replace(ROOMY, front_end_us=3000.0, front_end_token_us=4.0))
    assert at_once["ttft_mean_ms"] == pytest.approx(3.0)
    assert behind.serve(load, TABLE).figures["ttft_mean_ms"] == pytest.approx(5.0 + 3.0)
    ttft = behind.answer(load).figures["ttft_mean_ms"]
    assert (ttft.low, ttft.likely, ttft.high) == pytest.approx((3.0 / 2, 5.0 + 3.0, 3 * 5.0 + 2 * 3.0))


def test_recorded_requests_come_when_they_came(tmp_path: Path) -> None:
    """The second comes 2.5 s after the first, long after its five tokens; other loads leave arrivals out."""
    path = tmp_path / "log.csv"
    path.write_text("input,output,arrival\n500,5,1787267980.25\n500,5,1787267982.75\n")
    pattern = Pattern(read_lengths(str(path)))
    assert pattern.make(RECORDED).arrival_us == pytest.approx([0, 2.5e6])
    assert not pattern.make(RequestLoad(concurrency=1)).arrival_us.any()
    figures = simulate(pattern=pattern).answer(RECORDED).figures
    assert figures["ttft_p99_ms"].likely == pytest.approx(2.0)
    assert figures["requests_per_s"].likely == pytest.approx(2 / (2.5 + figures["e2e_mean_ms"].likely / 1e3))


@pytest.mark.parametrize(
    "arrivals", [("2", "1"), ("0", "nan"), ("0", "inf"), ("0", "1787267980250"), ("0", ""), ("0",)]
)
def test_impossible_arrivals_are_refused(tmp_path: Path, arrivals: tuple[str, ...]) -> None:
    path = tmp_path / "log.csv"
    path.write_text("input,output,arrival\n" + "".join(f"500,5,{one}\n" for one in arrivals) + "500,5\n")
    with pytest.raises(RequestError, match="arrival, in seconds"):
        read_lengths(str(path))


def test_the_pace_is_the_gpus_or_the_cpus() -> None:
    """Of five sequences the GPU takes 2 + 8 / 2 us; scaled, both take twice as long."""
    assert PACE.find_us(5).tolist() == [[1, 6, 12], [1, 3, 5]]
    assert PACE.scale(2).find_us(1).tolist() == [[2, 4, 8], [2, 6, 10]]
    assert simulate().answer(RequestLoad(concurrency=1)).mean_requests == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("gpu_us", "host_us", "pace"),
    [
        ((10, 11, 12), (1, 2, 9), PACE_BY_GPU),
        ((10, 11, 12), (1, 2, 10), PACE_LIKELY_BY_GPU),
        ((10, 11, 12), (5, 12, 20), PACE_LIKELY_BY_CPU),
        ((10, 11, 12), (13, 14, 20), PACE_BY_CPU),
    ],
)
def test_what_sets_the_pace_is_sure_where_intervals_are_apart(
    gpu_us: tuple[float, float, float], host_us: tuple[float, float, float], pace: Template
) -> None:
    assert describe_pace(gpu_us, host_us) == pace()
