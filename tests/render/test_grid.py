"""Tables on screens of any width: figures whole or not at all, and what is left out is named."""

import pytest
from rich.console import Console

from tracekit.render.grid import make_grid

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
