"""Tables on screens of any width: figures whole or not at all, and what is left out is named."""

import pytest
from rich.console import Console

from tracekit.render.screen import GridWithShortForm, make_grid

GPUS = ("l4", "a10g", "rtx-4090", "a100-sxm-80gb", "v100-sxm-32gb")
NAME = "aten::addmm  [3072]  cutlass::Kernel2<cutlass_80_tensorop>  [/clone .kd]"


def drawn(width):
    table = make_grid(
        ("measured", "number"), *((gpu, "number") for gpu in GPUS), ("family", "word"), ("kernel", "text")
    )
    table.add_row("399 µs", *(f"{number}23 µs" for number in range(len(GPUS))), "elementwise", NAME)
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_each_figure_is_there_whole_or_named_below(width):
    text = drawn(width)
    table, _, below = text.partition("left out at this width: ")
    assert max(map(len, text.splitlines())) <= width
    assert "399 µs" in table
    assert "elementwise" in table
    for number, gpu in enumerate(GPUS):
        assert (gpu in table, f"{number}23 µs" in table) in ((True, True), (False, False))
        assert (gpu in table) != (gpu in below)


def test_a_wide_screen_shows_it_all_and_brackets_as_they_are():
    text = drawn(200)
    assert "left out" not in text
    assert NAME in text


@pytest.mark.parametrize("width", [24, 40])
def test_what_was_asked_for_stays_on_a_narrow_screen(width):
    table = make_grid(
        ("", "word"), ("step", "figure"), ("90 % interval", "figure"), ("$/1M", "figure"), ("idle", "number")
    )
    table.add_row("h100-sxm", "7.06 ms", "6.14–8.13 ms", "0.0016", "2.48 ms")
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    text = capture.get()
    assert max(map(len, text.splitlines())) <= width
    assert "left out" not in text
    assert "h100-sxm step 7.06 ms, 90 % interval 6.14–8.13 ms, $/1M 0.0016, idle 2.48 ms" in " ".join(text.split())


def test_details_go_before_figures():
    table = make_grid(("time", "figure"), ("family", "detail"), ("count", "number"), ("kernel", "text"))
    table.add_row("399 µs", "elementwise", "12", NAME)
    console = Console(width=30, color_system=None)
    with console.capture() as capture:
        console.print(table)
    text = " ".join(capture.get().split())
    assert "left out at this width: family, count" in text
    assert "399 µs aten::addmm" in text


@pytest.mark.parametrize(
    ("width", "shown", "left_out"),
    [(64, "0.0016 (0.001–0.002)", "idle"), (48, "0.0016", "idle"), (40, "6.14–8.13 ms", "$/1M, idle")],
)
def test_costs_go_after_numbers_and_their_intervals_before_them(width, shown, left_out):
    def make(cost):
        table = make_grid(
            ("", "word"), ("step", "figure"), ("90 % interval", "figure"), ("$/1M", "cost"), ("idle", "number")
        )
        table.add_row("h100-sxm", "7.06 ms", "6.14–8.13 ms", cost, "2.48 ms")
        return table

    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(GridWithShortForm(make("0.0016 (0.001–0.002)"), make("0.0016")))
    assert f"left out at this width: {left_out}" in capture.get()
    assert shown in capture.get()
