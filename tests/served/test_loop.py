"""The loop of engine steps, against what can be worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.served.loop import Scheduler, run_engine
from tracekit.served.requests import Requests, make_requests
from tracekit.served.step_table import DecodePace, EngineStepTable

FIXED_US, TOKEN_US, SEQUENCE_US, HELD_US = 1000.0, 2.0, 10.0, 0.01
ROOMY = Scheduler(max_tokens=8192, max_sequences=256, pages=1_000_000)


def make_table(
    fixed: float = FIXED_US, token: float = TOKEN_US, sequence: float = SEQUENCE_US, held: float = HELD_US
) -> EngineStepTable:
    """Make a table of steps that take a fixed time, and more by new tokens, sequences and what the cache holds."""
    tokens, sequences, contexts = np.array([0.0, 100, 10_000]), np.array([0.0, 8, 512]), np.array([0.0, 1000, 100_000])
    t, s, c = np.meshgrid(tokens, sequences, contexts, indexing="ij")
    step_us = fixed + token * t + s * (sequence + held * c)
    return EngineStepTable(tokens, sequences, contexts, step_us, step_us / 1e4, np.zeros(3), 0.0)


PACE = DecodePace(np.array([1.0, 9.0]), np.array([[1.0, 1], [2, 10], [4, 20]]), np.array([[1.0, 1], [3, 3], [5, 5]]))
"""A likely step of one sequence takes the GPU 2 us, of nine 10 us, and the CPU 3 us."""


def test_one_request_alone_waits_for_its_prompt_then_one_step_a_token() -> None:
    served = run_engine(make_requests(1, 500, 4), ROOMY, make_table())
    assert served.first_us[0] == pytest.approx(1000 + 2 * 500)
    decodes = [1000 + 10 + 0.01 * held for held in (500, 501, 502)]
    assert served.last_us[0] == pytest.approx(2000 + sum(decodes))
    assert (served.steps, served.most_pages, served.prefilled_tokens) == (4, 32, 500)
    assert served.compute_gap_us(50) == pytest.approx(1015, rel=0.01)
    assert served.joules == pytest.approx(served.busy_us / 1e4)


def test_prompts_that_come_at_once_share_a_step() -> None:
    served = run_engine(make_requests(4, 100, 2), ROOMY, make_table())
    assert served.first_us == pytest.approx(np.full(4, 1000 + 2 * 400))
    assert served.last_us == pytest.approx(np.full(4, 1800 + 1000 + 4 * (10 + 1)))


def test_a_prompt_is_split_where_it_exceeds_a_step() -> None:
    """6,000 tokens at 4,096 a step: two steps, of 4,096 and 1,904."""
    served = run_engine(make_requests(1, 6000, 1), replace(ROOMY, max_tokens=4096), make_table())
    assert served.steps == 2
    assert served.first_us[0] == pytest.approx(2 * 1000 + 2 * 6000)


def test_attention_of_prompts_counts_pairs() -> None:
    """The second chunk of 100 tokens sees 100 before: 100 * (100 + 50) pairs, beside 5,000 of the first."""
    table = replace(make_table(), pair_us=0.1)
    served = run_engine(make_requests(1, 200, 1), replace(ROOMY, max_tokens=100), table)
    assert served.first_us[0] == pytest.approx(2 * (1000 + 200) + 0.1 * (5_000 + 15_000))


def test_decoding_waits_for_prompts_where_steps_do_not_mix() -> None:
    requests = Requests(np.array([0.0, 2100.0]), np.array([500, 500]), np.array([3, 1]))
    mixed = run_engine(requests, ROOMY, make_table())
    apart = run_engine(requests, replace(ROOMY, mixes=False), make_table())
    # The second comes during the first decode step, 2,000 to 3,015.
    assert mixed.first_us[1] == pytest.approx(3015 + 1000 + 2 * 500 + 10 + 5.01)
    assert mixed.last_us[0] == pytest.approx(mixed.first_us[1])
    assert apart.first_us[1] == pytest.approx(3015 + 2000)
    assert apart.last_us[0] == pytest.approx(5015 + 1015.01)


def test_the_last_token_of_a_prompt_is_computed_though_the_cache_holds_it() -> None:
    """Of 512 tokens, 32 whole pages: 511 needn't be computed, but one must, whose result is the first token."""
    served = run_engine(make_requests(1, 512, 1), replace(ROOMY, hit_rate=1.0), make_table())
    assert (served.prefilled_tokens, served.first_us[0]) == (1, pytest.approx(1000 + 2))


def test_the_prefix_cache_spares_whole_pages_of_the_prompt() -> None:
    """Half of 500 tokens are 250, in pages of 16: 240 needn't be computed."""
    served = run_engine(make_requests(1, 500, 1), replace(ROOMY, hit_rate=0.5), make_table())
    assert served.first_us[0] == pytest.approx(1000 + 2 * 260)
    # 260 tokens see 240 and, in the mean, half of themselves: 96,200 pairs.
    table = replace(make_table(), pair_us=0.1)
    paired = run_engine(make_requests(1, 500, 1), replace(ROOMY, hit_rate=0.5), table)
    assert paired.first_us[0] == pytest.approx(served.first_us[0] + 9620)


def test_speculation_gives_several_tokens_a_step() -> None:
    """Two tokens a step, of three that are verified: six more tokens take three steps of two more new tokens."""
    scheduler = replace(ROOMY, draft_tokens=2, tokens_per_step=2.0)
    served = run_engine(make_requests(1, 100, 7), scheduler, make_table(held=0.0))
    assert served.last_us[0] == pytest.approx(1200 + 3 * (1000 + 2 * 2 + 10))


def test_a_full_cache_preempts_the_last_sequence_and_computes_it_again() -> None:
    """Two sequences of 16 + 32 tokens need 6 pages of 16 at their end, and there are 5."""
    served = run_engine(make_requests(2, 16, 32), replace(ROOMY, pages=5), make_table())
    assert served.preemptions == 1
    assert served.last_us[1] > served.last_us[0]
    assert served.most_pages <= 5
    assert served.prefilled_tokens > 32


def test_decoding_alone_starts_with_the_first_token() -> None:
    served = run_engine(make_requests(1, 500, 3), ROOMY, make_table(), phase="decode")
    assert served.first_us[0] == 0.0
    assert served.last_us[0] == pytest.approx(2 * 1015 + 0.01)
    assert served.prefilled_tokens == 0


def test_prefilling_alone_ends_with_the_first_token() -> None:
    served = run_engine(make_requests(1, 500, 300), ROOMY, make_table(), phase="prefill")
    assert served.last_us[0] == served.first_us[0] == pytest.approx(2000)


def test_waiting_is_that_of_a_queue_with_one_server_and_equal_service() -> None:
    """M/D/1: a request waits rho / (2 (1 - rho)) services on average; here each takes a step of 1 ms alone."""
    rho, service_us = 0.6, 1000.0
    requests = make_requests(40_000, 1, 1).arrive_at(rho * 1e6 / service_us)
    served = run_engine(requests, replace(ROOMY, max_sequences=1), make_table(1000, 0, 0, 0))
    waiting = float((served.first_us - served.arrival_us).mean()) - service_us
    assert waiting == pytest.approx(service_us * rho / (2 * (1 - rho)), rel=0.04)


def test_a_rate_beyond_capacity_builds_a_queue() -> None:
    """One request a millisecond is served, and two come: the n-th waits about n / 2 milliseconds."""
    requests = make_requests(2000, 1, 1).arrive_at(2000)
    served = run_engine(requests, replace(ROOMY, max_sequences=1), make_table(1000, 0, 0, 0))
    assert served.first_us[-1] - served.arrival_us[-1] == pytest.approx(1e6, rel=0.1)


LENGTHS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 40)), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(
    lengths=LENGTHS,
    concurrency=st.integers(0, 12),
    mixes=st.booleans(),
    chunks=st.booleans(),
    pages=st.integers(24, 80),
    tokens=st.integers(64, 512),
    drafts=st.integers(0, 3),
)
def test_tokens_are_conserved_and_time_goes_forward(
    lengths: list[tuple[int, int]],
    concurrency: int,
    mixes: bool,
    chunks: bool,
    pages: int,
    tokens: int,
    drafts: int,
) -> None:
    given_lengths = np.array(lengths, np.int64)
    count = len(lengths)
    requests = Requests(np.arange(count) * 700.0, given_lengths[:, 0].copy(), given_lengths[:, 1].copy())
    scheduler = Scheduler(
        tokens, 8, pages, mixes=mixes, chunks=chunks, draft_tokens=drafts, tokens_per_step=1 + drafts / 2
    )
    served = run_engine(requests, scheduler, make_table(), concurrency)
    assert (served.arrival_us < served.first_us).all()
    assert (served.first_us <= served.last_us).all()
    assert served.gap_counts.sum() == (requests.output_tokens - 1).sum()
    assert served.most_pages <= pages
    assert served.prefilled_tokens >= requests.input_tokens.sum()
    assert served.preemptions or served.prefilled_tokens == requests.input_tokens.sum()
    if concurrency:  # Little's law: mean number in the system is the rate times the mean stay
        starts, ends = np.sort(served.arrival_us), np.sort(served.last_us)
        assert all(ends[at] <= starts[at + concurrency] for at in range(count - concurrency))


def test_the_front_end_delays_requests_and_what_follows_them() -> None:
    """Prompts of 500 and 100 tokens, one at once: the engine has them 2,000 and 1,200 us after they were sent."""
    requests = Requests(np.zeros(2), np.array([500, 100]), np.array([1, 1]))
    slow = replace(ROOMY, front_end_us=1000.0, front_end_token_us=2.0)
    served = run_engine(requests, slow, make_table(), concurrency=1)
    assert served.arrival_us == pytest.approx([0, 4000])
    assert served.first_us == pytest.approx([2000 + 2000, 4000 + 1200 + 1200])
    # By a rate, the second is sent 100 us later and waits for the first, which the front end hands over at 2,000 us.
    by_rate = run_engine(replace(requests, arrival_us=np.array([0.0, 100.0])), slow, make_table())
    assert by_rate.first_us == pytest.approx([2000 + 1000 + 2 * 600] * 2)
