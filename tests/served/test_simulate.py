"""Loads on an engine, and the largest one under limits."""

from dataclasses import replace

import numpy as np
import pytest

from tests.served.test_loop import ROOMY, make_table
from tracekit.served.requests import make_requests
from tracekit.served.simulate import FRONT_END_MS, Pattern, Replicas, RequestLoad, Simulation, find_largest_load
from tracekit.served.step_table import EngineStepTables

TABLE = make_table()


def simulate(**changes: object) -> Simulation:
    """Simulate requests of 500 and 5 tokens, at half, once and twice the time of each step."""
    tables = EngineStepTables(TABLE.scale(0.5), TABLE, TABLE.scale(2.0), host_share=0.0)
    made = Simulation(Pattern(make_requests(1, 500, 5), count=20), ROOMY, tables, gpus=2, idle_w=100.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_figures_have_the_ends_of_the_steps() -> None:
    """Alone, a prompt takes 1,000 + 2 x 500 us, and a token 1,010 us and what the cache holds."""
    figures = simulate().answer(RequestLoad(concurrency=1)).figures
    ttft, tpot = figures["ttft_p50_ms"], figures["tpot_mean_ms"]
    assert (ttft.low, ttft.likely, ttft.high) == pytest.approx((1.0, 2.0, 4.0 + FRONT_END_MS))
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


def test_waiting_holds_requests_that_stay_together_and_those_apart() -> None:
    """Four prompts of 500 tokens share a step of 5,000 us while they stay together; alone each takes 2,000 us."""
    load = RequestLoad(concurrency=4)
    open_ms, together_ms, apart_ms = (
        simulate(pattern=Pattern(make_requests(1, 500, 200), spread, 400)).answer(load).figures["ttft_p50_ms"]
        for spread in (None, 0.0, 0.2)
    )
    assert open_ms.likely == together_ms.likely == pytest.approx(1 + 2 * 2, rel=0.2)
    assert apart_ms.low < together_ms.low
    assert (open_ms.low, open_ms.high) == (apart_ms.low, together_ms.high)
    several = replace(make_requests(2, 500, 200), input_tokens=np.array([400, 600]))
    assert simulate(pattern=Pattern(several, None, 400)).may_disperse(load) is False
    assert simulate(scheduler=replace(ROOMY, mixes=False)).may_disperse(load) is False
