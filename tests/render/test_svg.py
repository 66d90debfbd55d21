"""Charts drawn as SVG: each value stands where its axis says."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from tests.render.conftest import NASTY
from tracekit.render.charts import CHART_BUILDERS, build_chart
from tracekit.render.charts.model import Axis, Chart, Series
from tracekit.render.charts.svg import WIDTH_PX, draw_svg

SVG = "{http://www.w3.org/2000/svg}"


def make_chart(**changes):
    return Chart(
        **{"name": "c", "title": "t", "x": Axis("ms"), "y": Axis(""), "series": (), "height_px": 200.0} | changes
    )


def make_bars(values, name="busy", colour="#0072b2"):
    texts = tuple(f"{name} {value}" for value in values)
    return Series(name=name, kind="bars", x=tuple(range(len(values))), y=tuple(values), texts=texts, colour=colour)


def parse(chart):
    return ElementTree.fromstring(draw_svg(chart))


def read_bars(chart):
    """Left, top, width and height by what is said of a bar."""
    names = ("x", "y", "width", "height")
    bars = (rect for rect in parse(chart).iter(f"{SVG}rect") if len(rect))
    return {rect[0].text: tuple(float(rect.get(name)) for name in names) for rect in bars}


@pytest.mark.parametrize("name", CHART_BUILDERS)
def test_all_charts_are_well_formed_and_titled(report, name):
    chart = build_chart(report, name)
    drawn = parse(chart)
    assert drawn.get("aria-label") == chart.title
    assert "nan" not in draw_svg(chart)
    assert "inf" not in draw_svg(chart)


def test_stacked_bars_begin_where_those_before_them_end_and_are_as_long_as_their_values():
    chart = make_chart(
        series=(make_bars((3.0, 1.0)), make_bars((1.0, 1.0), "idle", "#444444")),
        categories=("a", "b"),
        is_horizontal=True,
    )
    bars = read_bars(chart)
    first, second, idle = bars["busy 3.0"], bars["busy 1.0"], bars["idle 1.0"]
    assert first[2] == pytest.approx(3 * second[2], abs=0.3)
    assert first[0] == second[0]
    assert first[1] + first[3] < second[1]
    assert idle[0] == pytest.approx(second[0] + second[2], abs=0.2)


def test_bars_stand_on_the_axis():
    bars = read_bars(make_chart(series=(make_bars((4.0, 2.0)),), categories=("step 1", "step 2"), y=Axis("ms")))
    high, low = bars["busy 4.0"], bars["busy 2.0"]
    assert high[1] + high[3] == pytest.approx(low[1] + low[3], abs=0.2)
    assert high[3] == pytest.approx(2 * low[3], abs=0.3)


def test_areas_are_stacked():
    series = tuple(
        Series(name=name, kind="areas", x=(0.0, 1.0), y=(1.0, 1.0), colour="#0072b2") for name in ("one", "two")
    )
    paths = [one.get("d") for one in parse(make_chart(series=series, y=Axis("n"))).iter(f"{SVG}path")][-2:]
    (_, first_top), (_, second_top) = (tuple(map(float, path[1:].split("L")[0].split())) for path in paths)
    assert second_top < first_top


@pytest.mark.parametrize("limits", [(0.0, 0.037), (0.0, 1.0), (2.0, 1234.5), (0.0, 9.9e6)])
def test_ticks_are_round_and_not_too_many(limits):
    points = Series(name="p", kind="lines", x=(limits[0], limits[1]), y=(0.0, 1.0), colour="#000000")
    drawn = parse(make_chart(x=Axis("x", limits=limits), y=Axis("y", limits=(0.0, 1.0)), series=(points,)))
    texts = [float(text.text.replace(",", "")) for text in drawn.iter(f"{SVG}text") if text.text not in ("x", "y")]
    along = [value for value in texts if limits[0] <= value <= limits[1]]
    assert 4 <= len({*along}) <= 25
    assert len({*along}) == len({f"{value:.12g}" for value in along})


def test_names_of_many_bars_do_not_cover_each_other():
    many = make_chart(
        series=(make_bars((1.0,) * 200),), categories=tuple(f"step {number}" for number in range(200)), y=Axis("ms")
    )
    places = [float(text.get("x")) for text in parse(many).iter(f"{SVG}text") if text.text.startswith("step")]
    assert len(places) > 5
    assert min(after - before for before, after in pairwise(places)) > 7 * len("step 199")
    assert max(places) < WIDTH_PX


def test_names_are_text():
    chart = make_chart(
        series=(make_bars((1.0,), NASTY), make_bars((2.0,), "b")), categories=(NASTY,), is_horizontal=True
    )
    assert "<img" not in draw_svg(chart)
    assert NASTY in {text.text for text in parse(chart).iter(f"{SVG}text")}
