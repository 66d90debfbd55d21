"""The decision: worked by hand on steps with round numbers, and what must hold for any."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.decisions import make_source, make_step
from tracekit.messages import Message
from tracekit.prediction.batch import StepBatch
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.model import PredictedStep
from tracekit.prediction.question import DEFAULT_QUESTION, Question, RankBy, WholeRun
from tracekit.reporting.figure import Figure
from tracekit.reporting.sections.decision import Decision, TargetDecision
from tracekit.reporting.sections.step import SourceSummary
from tracekit.reporting.sections.targets import build_decision, forget_prices

H100 = make_step("h100-sxm", 0.5, 0.4, 0.625)
"""Twice as fast as the trace's A100: 1.6 to 2.5 times."""
L4 = make_step("l4", 4.0, 3.2, 5.0)


def decide(
    source: SourceSummary, *targets: PredictedStep, question: Question = DEFAULT_QUESTION, **told: Any
) -> Decision:
    decision = build_decision(source, targets, question, **told)
    assert decision is not None
    return decision


def list_answers(sentence: Message) -> list[str]:
    answers = sentence.values["answers"]
    assert isinstance(answers, tuple)
    return [answer.code for answer in answers if isinstance(answer, Message)]


def spread(figure: Figure | None) -> tuple[float, float, float]:
    assert figure is not None
    return figure.ordered


def test_without_targets_nothing_is_decided() -> None:
    assert build_decision(make_source(), (), DEFAULT_QUESTION) is None


def test_the_speedup_and_its_interval_are_those_of_the_step() -> None:
    (target,) = decide(make_source(), H100).targets
    assert spread(target.speedup) == pytest.approx((1.6, 2.0, 2.5))
    assert (target.dollars, target.break_even, target.hourly) == (None, None, None)
    assert target.sentence.render() == "H100-SXM: 1.6 to 2.5 times as fast (most likely 2.0)."


def test_it_pays_below_the_price_here_times_the_speedup() -> None:
    """An A100 of 2 dollars: an H100 pays below 4 dollars, by the interval 3.2 to 5."""
    (target,) = decide(make_source(price=2.0), H100).targets
    assert spread(target.break_even) == pytest.approx((3.2, 4.0, 5.0))
    assert list_answers(target.sentence) == ["speed-higher", "pays-below"]


def test_eight_gpus_pay_below_an_eighth() -> None:
    """Two GPUs here cost 4 dollars an hour; eight do 2 times the work: 8 dollars, one for each."""
    eight = replace(H100, ranks=8, rented=8)
    (target,) = decide(make_source(price=2.0, ranks=2, rented=2), eight).targets
    assert spread(target.break_even)[1] == pytest.approx(1.0)
    assert target.name == "8 × H100-SXM"


def test_dollars_have_the_interval_of_the_step() -> None:
    """A step of 3.6 s takes a thousandth of an hour: 1,000 steps there half an hour, 1.5 dollars."""
    decision = decide(make_source(price=2.0), replace(H100, price=3.0))
    (target,) = decision.targets
    assert (decision.unit, decision.amount, decision.here.dollars) == ("steps", 1000, pytest.approx(2.0))
    assert spread(target.dollars) == pytest.approx((1.2, 1.5, 1.875))
    assert list_answers(target.sentence) == ["speed-higher", "costs-less"]
    assert "25 % less per step (6.2 to 40 %)" in target.sentence.render()


def test_a_batch_counts_work_in_its_unit() -> None:
    """500 tokens a step: a million are 2,000 steps. A batch of twice the size does twice the work in a step."""
    tokens = StepBatch(500.0, "tokens")
    decision = decide(make_source(price=2.0, batch=tokens), replace(H100, price=3.0, batch_ratio=2.0))
    (target,) = decision.targets
    assert (decision.unit, decision.here.dollars) == ("tokens", pytest.approx(4.0))
    assert spread(target.speedup) == pytest.approx((3.2, 4.0, 5.0))
    assert spread(target.dollars)[1] == pytest.approx(1.5)
    assert spread(target.joules) == pytest.approx((0.04, 0.05, 0.0625))


@pytest.mark.parametrize(
    ("there", "code"), [(3.0, "costs-less"), (4.1, "costs-undecided"), (5.5, "costs-more"), (9.0, "costs-times")]
)
def test_which_costs_less_is_said_only_where_the_interval_tells(there: float, code: str) -> None:
    """Against 2 dollars here: the ratio of costs is there / 4, from there / 5 to there / 3.2."""
    (target,) = decide(make_source(price=2.0), replace(H100, price=there)).targets
    assert list_answers(target.sentence) == ["speed-higher", code]


@pytest.mark.parametrize(
    ("likely", "low", "high", "code"),
    [
        (0.5, 0.4, 0.6, "speed-higher"),
        (0.8, 0.6, 1.2, "speed-maybe-higher"),
        (1.0, 1.0, 1.0, "speed-as-measured"),
        (1.001, 0.9, 1.2, "speed-level"),
        (1.5, 0.9, 2.0, "speed-maybe-lower"),
        (2.0, 1.5, 3.0, "speed-lower"),
    ],
)
def test_faster_is_said_only_where_the_interval_tells(likely: float, low: float, high: float, code: str) -> None:
    (target,) = decide(make_source(), make_step("x", likely, low, high)).targets
    assert list_answers(target.sentence) == [code]


def test_a_captured_program_has_steps_alone() -> None:
    (target,) = decide(make_source(is_captured=True), H100).targets
    assert list_answers(target.sentence) == ["step-of-capture"]


def test_an_instance_costs_as_a_whole() -> None:
    """Eight GPUs are paid for the work of one: the price of one pays below an eighth of the break-even price."""
    decision = decide(make_source(price=2.0), replace(H100, price=3.0, rented=8))
    (target,) = decision.targets
    assert (target.hourly, target.gpus) == (24.0, 1)
    assert spread(target.dollars)[1] == pytest.approx(12.0)
    assert spread(target.break_even)[1] == pytest.approx(0.5)
    assert "rented-whole" in list_answers(target.sentence)


def test_a_whole_run_has_hours_and_dollars() -> None:
    """Of 500 tokens in a step, a million are 2,000 steps: 2 hours here, one there."""
    question = Question(whole_run=WholeRun(1e6, "tokens"))
    source = make_source(price=2.0, batch=StepBatch(500.0, "tokens"))
    decision = decide(source, replace(H100, price=3.0), question=question)
    (target,) = decision.targets
    assert (decision.here.run_hours, decision.here.run_dollars) == (pytest.approx(2.0), pytest.approx(4.0))
    assert spread(target.run_hours) == pytest.approx((0.8, 1.0, 1.25))
    assert spread(target.run_dollars) == pytest.approx((2.4, 3.0, 3.75))
    assert list_answers(target.sentence)[2:] == ["run-takes", "run-costs"]


def test_a_rank_is_claimed_only_where_intervals_support_it() -> None:
    """0.5 and 0.55 on intervals of 25 % may be either way; 4 isn't."""
    near = make_step("b200", 0.55, 0.44, 0.6875)
    decision = decide(make_source(), L4, near, H100)
    assert [(one.label, one.rank) for one in decision.targets] == [("h100-sxm", 1), ("b200", 1), ("l4", 3)]
    assert list_answers(decision.sentence)[-1] == "level-by-time"
    assert list_answers(decide(make_source(), L4, H100).sentence)[-1] == "first-by-time"


def test_targets_are_ranked_by_what_is_asked() -> None:
    """The L4 is slowest and cheapest: 4 times the time at a tenth of the price."""
    priced = replace(H100, price=10.0), replace(L4, price=0.5), make_step("t4", 9.0, 8.0, 10.0)
    labels = {
        rank_by: [one.label for one in decide(make_source(), *priced, question=Question(rank_by)).targets]
        for rank_by in RankBy
    }
    assert labels[RankBy.TIME] == labels[RankBy.ENERGY] == ["h100-sxm", "l4", "t4"]
    assert labels[RankBy.DOLLARS] == labels[RankBy.TOKENS_PER_DOLLAR] == ["l4", "h100-sxm", "t4"]


def test_dollars_rank_where_all_targets_have_a_price() -> None:
    priced, free = [replace(H100, price=10.0), replace(L4, price=0.5)], [replace(H100, price=10.0), L4]
    assert [decide(make_source(), *some, question=Question()).ranked_by for some in (priced, free)] == [
        "dollars",
        "time",
    ]


def test_a_target_of_which_little_is_known_is_not_first() -> None:
    """Either may be the fastest: the first by its likely figure has ends a factor 4 apart."""
    wide, near = make_step("b200", 0.5, 0.25, 1.0), make_step("h200-sxm", 0.7, 0.6, 0.8)
    assert [(one.label, one.rank) for one in decide(make_source(), wide, near).targets] == [
        ("h200-sxm", 1),
        ("b200", 1),
    ]
    assert decide(make_source(), replace(wide, high_us=2.9 * wide.low_us), near).targets[0].label == "b200"


@pytest.mark.parametrize(
    ("likely", "low", "high", "code"),
    [(1.5, 1.2, 1.8, "stay-fastest"), (1.2, 0.9, 1.5, "stay-likely-fastest"), (0.9, 0.7, 1.2, None)],
)
def test_to_stay_is_a_candidate(likely: float, low: float, high: float, code: str | None) -> None:
    """Also by dollars, at the price here; without one nothing is said of staying."""
    target = make_step("l4", likely, low, high)
    stays = [one for one in list_answers(decide(make_source(), target).sentence) if one.startswith("stay")]
    assert stays == ([code] if code else [])
    priced = decide(make_source(price=2.0), replace(target, price=2.0), question=Question(RankBy.DOLLARS))
    stays = [one for one in list_answers(priced.sentence) if one.startswith("stay")]
    assert stays == ([code.replace("fastest", "cheapest")] if code else [])
    alone = decide(make_source(), replace(target, price=2.0), question=Question(RankBy.DOLLARS))
    assert not [one for one in list_answers(alone.sentence) if one.startswith("stay")]


def test_what_lacks_the_memory_is_behind_all_others() -> None:
    lacking = replace(H100, memory=replace(H100.memory, fits=False))
    decision = decide(make_source(), lacking, L4)
    assert [(one.label, one.rank) for one in decision.targets] == [("l4", 1), ("h100-sxm", 2)]
    assert "lacks-memory" in list_answers(decision.targets[1].sentence)


def test_the_cheapest_is_named_only_where_intervals_tell() -> None:
    """2 dollars here are 2 for the work; there 1 to 1.6 or 1.8 to 2.8."""
    sure, open_ = ((replace(H100, price=price), L4) for price in (2.5, 4.5))
    assert list_answers(decide(make_source(price=2.0), *sure).sentence)[-1] == "cheapest"
    assert list_answers(decide(make_source(price=2.0), *open_).sentence)[-1] == "cheapest-open"
    assert not {"cheapest", "cheapest-open"} & {*list_answers(decide(make_source(), *sure).sentence)}


def test_without_prices_no_dollar_is_left() -> None:
    priced = decide(make_source(price=2.0), replace(H100, price=3.0, rented=8), L4, prices_date="2026-11-01")
    assert "Prices are of 2026-11-01." in priced.sentence.render()
    bare = forget_prices(priced)
    assert "$" not in f"{bare.sentence}{[str(one.sentence) for one in bare.targets]}"
    assert [one.label for one in bare.targets] == [one.label for one in priced.targets]


def test_without_prices_nothing_is_ranked_by_them() -> None:
    """Or the order would tell what they were."""
    priced = [replace(H100, price=10.0), replace(L4, price=0.5)]
    by_dollars = decide(make_source(price=2.0), *priced, question=Question(RankBy.DOLLARS))
    bare, by_time = forget_prices(by_dollars), decide(make_source(), H100, L4)
    assert bare.ranked_by == "time"
    assert [(one.label, one.rank) for one in bare.targets] == [(one.label, one.rank) for one in by_time.targets]
    assert list_answers(bare.sentence) == list_answers(by_time.sentence)


FACTORS = st.floats(0.05, 20)
WIDTHS = st.floats(1, 3)


@st.composite
def steps(draw: st.DrawFn) -> list[PredictedStep]:
    """Draw one to eight targets, some with a price, some without the memory."""
    made = []
    for number in range(draw(st.integers(1, 8))):
        likely, below, above = draw(FACTORS), draw(WIDTHS), draw(WIDTHS)
        price, fits = draw(st.none() | FACTORS), draw(st.sampled_from([True, False, None]))
        memory = MemoryFit(None, None, fits, H100.memory.reason)
        made.append(make_step(f"gpu{number}", likely, likely / below, likely * above, price=price, memory=memory))
    return made


@given(steps(), st.randoms(), st.sampled_from(RankBy))
def test_ranks_do_not_hang_on_the_order_of_the_targets(targets: list[PredictedStep], random: Any, by: RankBy) -> None:
    shuffled = random.sample(targets, len(targets))
    assert decide(make_source(), *targets, question=Question(by)) == decide(
        make_source(), *shuffled, question=Question(by)
    )


@given(steps(), FACTORS)
def test_at_the_break_even_price_the_work_costs_the_same(targets: list[PredictedStep], price: float) -> None:
    source = make_source(price=price)
    for one in decide(source, *targets).targets:
        (target,) = (target for target in targets if target.label == one.label)
        assert one.break_even is not None
        (same,) = decide(source, replace(target, price=one.break_even.likely)).targets
        assert same.dollars is not None
        assert same.dollars.likely == pytest.approx(price)


@given(steps())
def test_a_better_rank_is_never_likely_worse(targets: list[PredictedStep]) -> None:
    """Among those that fit, whatever is surely behind another one takes longer."""
    able = [
        one for one in decide(make_source(), *targets, question=Question(RankBy.TIME)).targets if one.fits is not False
    ]
    first = [one for one in able if one.rank == 1]
    assert all(is_slower_than_one(one, first) for one in able if one.rank > 1)


def is_slower_than_one(target: TargetDecision, first: list[TargetDecision]) -> bool:
    return any(target.speedup.likely < one.speedup.likely for one in first)
