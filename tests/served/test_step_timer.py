"""Times of batches, as simulators of schedulers ask them, against the loop of engine steps."""

import pickle
from dataclasses import replace

import pytest

from tests.served.test_loop import PACE, ROOMY, make_table
from tracekit.served.loop import run_engine
from tracekit.served.requests import make_requests
from tracekit.served.step_table import EngineStepTables
from tracekit.served.step_timer import SGLANG_FEATURES, BatchSize, StepTimer, time_step_us

TABLE = make_table()
PAIRED = StepTimer(EngineStepTables(*[replace(TABLE, pair_us=0.1)] * 3, pace=PACE))
TIMER = StepTimer(EngineStepTables(TABLE.scale(0.5), TABLE, TABLE.scale(2), pace=PACE))


def list_features(**told: float) -> list[float]:
    """List what SGLang tells of a batch; what doesn't matter is -1."""
    return [told.get(name, -1.0) for name in SGLANG_FEATURES]


def test_decoding_sequences_count_by_what_they_hold() -> None:
    """1,000 us, and of two sequences each 10 us and 0.01 us for each of 500 and 300 tokens held."""
    low, likely, high = TIMER.time_batch_us([(1, 500), (1, 300)])
    assert likely == pytest.approx(1000 + 2 * 10 + 0.01 * 800)
    assert (low, high) == pytest.approx((likely / 2, likely * 2))


def test_prompts_count_by_tokens_and_pairs() -> None:
    """A chunk of 100 tokens behind 100 others, beside a sequence that decodes; a first token alone is a prompt."""
    assert PAIRED.time_batch_us([(100, 100)])[1] == pytest.approx(1000 + 2 * 100 + 0.1 * 100 * (100 + 50))
    assert TIMER.time_batch_us([(100, 100), (1, 500)])[1] == pytest.approx(1000 + 200 + 10 + 5)
    assert TIMER.time_batch_us([(1, 0)])[1] == pytest.approx(time_step_us(TABLE, BatchSize(1, 0.5, 0, 0)))


def test_the_loop_takes_as_long() -> None:
    """A prompt of 700 tokens, then a step with 700 and one with 701 in the cache."""
    served = run_engine(make_requests(1, 700, 3), ROOMY, PAIRED.tables.likely)
    steps = [PAIRED.time_batch_us([one])[1] for one in ((700, 0), (1, 700), (1, 701))]
    assert served.last_us[0] == pytest.approx(sum(steps))


def test_sglangs_simulator_gets_seconds_from_a_stored_timer() -> None:
    """It stores its model with joblib, and asks for a list of batches by 18 features."""
    kept = pickle.loads(pickle.dumps(TIMER))  # our own
    assert len(SGLANG_FEATURES) == 18
    decode = list_features(batch_size=2, sum_past=800, is_decode=1, is_prefill=0)
    prefill = list_features(batch_size=1, sum_extend=100, sum_attn_flops=15_000, is_decode=0, is_prefill=1)
    assert kept.predict([decode, prefill]) == pytest.approx([1028e-6, 1200e-6])
