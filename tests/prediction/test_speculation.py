"""Speculative decoding: tokens that are verified together, of which some are accepted."""

import pytest

import tracekit as tk
from tests.codes import find_message, has_code, list_codes
from tests.jobs import served
from tracekit.errors import RequestError
from tracekit.ingest.batches import find_speculation
from tracekit.prediction.batch import StepBatch
from tracekit.request import PredictRequest

PLAIN = "execute_context_0(0)_generation_8(8)"
SPECULATED = "execute_context_0(0)_generation_8(32)"


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        (PLAIN, None),
        (SPECULATED, (8, 32)),
        ("execute_context_1(500)_generation_8(32)", (8, 32)),
        ("execute_context_1(500)_generation_0(0)", None),
        ("execute_40_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq40sk900sqsq200sqsk4500)", (8, 40)),
        ("step[TARGET_VERIFY bs=3 toks=12]", (3, 12)),
        ("step[DECODE bs=16]", None),
        ("step[EXTEND bs=2 toks=4096]", None),
    ],
)
def test_marks_tell_tokens_and_sequences(name: str, counts: tuple[int, int] | None):
    found = find_speculation(served(name, name).load().rank())
    assert (found and (found.sequences, found.verified)) == counts


def test_the_price_of_a_token_is_open_by_how_many_are_accepted():
    """8 to 32 tokens in a step, most likely 16: the price is twice as much or half as much."""
    plain, open_price, likely = (
        tk.report(tk.predict(served(*[name] * 6).load(), gpu="b200", price="5", **options)).decision.targets[0].dollars
        for name, options in ((PLAIN, {}), (SPECULATED, {}), (SPECULATED, {"accepted_tokens": 2}))
    )
    assert open_price.high == pytest.approx(plain.high)
    assert open_price.likely == pytest.approx(plain.likely / 2)
    assert open_price.low == pytest.approx(plain.low / 4)
    assert likely.ordered == pytest.approx(plain.scale(0.5).ordered)


def test_what_is_assumed_is_said_and_the_option_narrows_it():
    trace = served(*[SPECULATED] * 6).load()
    predicted = tk.predict(trace, gpu="b200")
    assert predicted.batch == StepBatch(
        16.0, "tokens", marked=True, least=8.0, most=32.0, phase="decode", accepted=(2.0, 1.0, 4.0)
    )
    told = find_message(tk.report(predicted).warnings, "acceptance-unknown").values
    assert (told["least"], told["likely"], told["most"]) == (8, 16, 32)
    given = tk.predict(trace, gpu="b200", accepted_tokens=2.5)
    assert given.batch == StepBatch(20.0, "tokens", marked=True, phase="decode", accepted=(2.5,) * 3)
    assert "acceptance-unknown" not in list_codes(tk.report(given).warnings)
    plain = tk.predict(served(*[PLAIN] * 6).load(), gpu="b200")
    assert "acceptance-unknown" not in list_codes(tk.report(plain).warnings)


def test_prompts_beside_speculated_tokens_count_in_full():
    mixed = "execute_context_1(500)_generation_8(32)"
    assert tk.predict(served(*[mixed] * 6).load(), gpu="b200").batch == StepBatch(
        516.0, "tokens", marked=True, least=508.0, most=532.0, phase="mixed", accepted=(2.0, 1.0, 4.0)
    )


def test_a_token_takes_a_batch_over_those_accepted():
    """Batches of 100: 50 a token, from 25 to 100; 8 to 32 tokens in each."""
    serving = tk.report(served(*[SPECULATED] * 6).load()).serving
    assert serving is not None
    measured = serving.kinds[0].speeds[0]
    assert measured.output_token_us.ordered == pytest.approx((25, 50, 100))  # type: ignore[union-attr]
    assert measured.tokens_per_s.ordered == pytest.approx((80_000, 160_000, 320_000))
    assert measured.tokens_per_s_per_user.ordered == pytest.approx((10_000, 20_000, 40_000))  # type: ignore[union-attr]
    assert "tokens-speculated" in list_codes(serving.notes)
    given = tk.report(served(*[SPECULATED] * 6).load(), accepted_tokens=4).serving
    assert given is not None
    assert given.kinds[0].speeds[0].output_token_us.ordered == pytest.approx((25, 25, 25))  # type: ignore[union-attr]
    assert "tokens-accepted" in list_codes(given.notes)


def test_a_run_of_tokens_is_as_open():
    predicted = tk.predict(served(*[SPECULATED] * 6).load(), gpu="b200", tokens_to_run="16M", price="5")
    decision = tk.report(predicted).decision
    assert decision is not None
    step, hours = predicted["b200"].step, decision.targets[0].run_hours
    assert hours is not None
    assert hours.likely == pytest.approx(1e6 * step.mean_us / 3.6e9)
    assert hours.high == pytest.approx(2e6 * predicted["b200"].mean_high_us / 3.6e9)


@pytest.mark.parametrize(
    ("name", "accepted", "code"),
    [(SPECULATED, 4.5, "accepted-tokens-too-many"), (PLAIN, 2, "tokens-not-speculated")],
)
def test_what_no_batch_verifies_is_refused(name: str, accepted: float, code: str):
    with pytest.raises(RequestError, check=has_code(code)):
        tk.predict(served(*[name] * 6).load(), gpu="b200", accepted_tokens=accepted)


def test_less_than_one_token_is_refused():
    with pytest.raises(RequestError):
        PredictRequest(gpu="b200", accepted_tokens=0.5).check()
