"""Messages: a template, typed values, rendered for each front end."""

import json
import pickle
from types import ModuleType

import pytest

from tracekit.errors import TracekitError
from tracekit.messages import Message, Severity, Template, name_argument
from tracekit.messages.catalogue import collect_templates

SLOW = Template(
    "step-slow",
    Severity.WARNING,
    "step {step} took {time_us} ({share_pct} more than {others:list})",
    "Leave it out with {--steps}.",
)


def render(text: str, **values: object) -> str:
    return Template("any", Severity.NOTE, text)(**values).render()  # type: ignore[arg-type]


def test_a_values_name_gives_its_unit() -> None:
    message = SLOW(step=3, time_us=1234.0, share_pct=12.3, others=["1", "2"])
    assert message.render() == "step 3 took 1.23 ms (12 % more than 1, 2) Leave it out with --steps."
    assert render("{size_bytes}", size_bytes=2 << 30) == "2 GiB"


def test_formats() -> None:
    assert render("{n:count kernel}", n=1) == "1 kernel"
    assert render("{n:count kernel}", n=1200) == "1,200 kernels"
    assert render("{ends_us:interval}", ends_us=(7060.0, 9020.0)) == "7.06–9.02 ms"
    assert render("{x:number} {x:.1f} {path!r}", x=1.2345, path="a b") == "1.23 1.2 'a b'"


def test_each_front_end_names_options_its_own_way() -> None:
    message = Template("any", Severity.NOTE, "x", "Name it with {--source-gpu}.")()
    assert message.render_hint() == "Name it with --source-gpu."
    assert message.render_hint(name_argument) == "Name it with source_gpu=."
    assert message.render_hint(lambda name: f"“{name}”") == "Name it with “source-gpu”."


def test_a_message_holds_others() -> None:
    cause = Template("cause", Severity.NOTE, "{--tp} is missing")()
    outer = Template("outer", Severity.NOTE, "refused: {causes:list}")(causes=[cause])
    assert outer.render(name_argument) == "refused: tp= is missing"
    assert outer.to_dict()["values"]["causes"][0]["code"] == "cause"


def test_values_must_fit_the_template() -> None:
    with pytest.raises(TypeError):
        SLOW(step=3)
    with pytest.raises(TypeError):
        Template("any", Severity.NOTE, "x")(extra=1)


def test_values_are_never_templates() -> None:
    assert render("{name}", name="void k<{0}>({--tp})") == "void k<{0}>({--tp})"


def test_json_carries_code_values_and_text() -> None:
    shown = json.loads(json.dumps(SLOW(step=3, time_us=1e3, share_pct=1.0, others=["1"]).to_dict()))
    assert shown["code"] == "step-slow"
    assert shown["severity"] == "warning"
    assert shown["values"] == {"step": 3, "time_us": 1e3, "share_pct": 1.0, "others": ["1"]}
    assert shown["text"].startswith("step 3 took 1.00 ms")
    assert shown["link"] == "reference/messages.html#step-slow"


def test_messages_and_errors_survive_pickling() -> None:
    message = SLOW(step=3, time_us=1e3, share_pct=1.0, others=["1"])
    assert pickle.loads(pickle.dumps(message)) == message
    error = pickle.loads(pickle.dumps(TracekitError(message)))
    assert (error.code, error.hint) == ("step-slow", "Leave it out with --steps.")


def make_area(**templates: Template) -> ModuleType:
    area = ModuleType("area")
    vars(area).update(templates)
    return area


def test_the_catalogue_refuses_a_code_used_twice_or_unlike_its_name() -> None:
    assert collect_templates([make_area(STEP_SLOW=SLOW)]) == {"step-slow": SLOW}
    with pytest.raises(ValueError, match="twice"):
        collect_templates([make_area(STEP_SLOW=SLOW), make_area(STEP_SLOW=SLOW)])
    with pytest.raises(ValueError, match="code of OTHER"):
        collect_templates([make_area(OTHER=SLOW)])


def test_message_is_plain_data() -> None:
    assert SLOW(step=1, time_us=1.0, share_pct=1.0, others=["1"]) == Message(
        SLOW, {"step": 1, "time_us": 1.0, "share_pct": 1.0, "others": ("1",)}
    )
