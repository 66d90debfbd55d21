"""What Python's functions refuse: always in tracekit's own errors, and in Python's words."""

import inspect

import pytest

import tracekit as tk
from tests.codes import has_code
from tracekit.errors import GpuError
from tracekit.testing import TraceBuilder


@pytest.fixture(scope="module")
def trace():
    return TraceBuilder().op("aten::mm", 0, 9).kernel("k", 9, 9, launch=1).load()


@pytest.mark.parametrize("verb", [tk.predict, tk.sweep, tk.export_timeline])
def test_an_unknown_gpu_is_an_error_of_tracekits(trace, verb):
    with pytest.raises(GpuError, match="nope", check=has_code("gpu-unknown")) as refused:
        verb(trace, gpu="nope")
    assert isinstance(refused.value, tk.TracekitError)
    assert isinstance(refused.value, LookupError)


def test_the_gpu_of_a_program_and_of_a_fleet_too(tmp_path, trace):
    with pytest.raises(GpuError):
        tk.report(trace, source_gpu="nope")
    with pytest.raises(GpuError):
        tk.predict_fleet(TraceBuilder().kernel("k", 9, 9, launch=1).save(tmp_path / "t.json.gz"), gpu="nope")


@pytest.mark.parametrize("given", [5, None, [5]])
def test_what_is_no_path_is_refused(given):
    with pytest.raises(tk.TracekitError, check=has_code("input-not-a-path")):
        tk.load(given)


def test_options_are_named_as_python_names_them(trace):
    with pytest.raises(tk.TracekitError, check=has_code("no-target")) as refused:
        tk.predict(trace)
    assert "gpu=" in str(refused.value)
    assert "--" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "meant"), [("gpuu", "'gpu'"), ("batch_size", "'batch'"), ("microbatches", "'micro_batches'")]
)
def test_a_wrong_keyword_is_met_by_those_like_it(trace, given, meant):
    with pytest.raises(TypeError, match=rf"predict\(\) got .*{given}.*{meant}"):
        tk.predict(trace, **{given: 1})


def test_a_keyword_like_no_other_is_refused_alone(trace):
    with pytest.raises(TypeError, match=r"'zzzzzz'$"):
        tk.predict(trace, zzzzzz=1)


def test_only_what_is_public_is_listed():
    assert dir(tk) == sorted(tk.__all__)
    assert all(inspect.signature(getattr(tk, name)).parameters for name in ("load", "predict", "report", "capture"))


def test_a_price_of_no_use_is_warned_of(trace):
    with pytest.warns(UserWarning, match=r"price of h100 isn't used") as warned:
        tk.predict(trace, gpu="l4", source_gpu="a100-sxm-80gb", price={"h100": 1})
    assert warned[0].filename == __file__
