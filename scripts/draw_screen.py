"""Draw the README's picture: what `make demo` prints, as an SVG that loads nothing from elsewhere."""

import io
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

import tracekit
from tracekit.prediction import predict
from tracekit.render.terminal import predicted
from tracekit.replay.run import prepare
from tracekit.reporting import build

ROOT = Path(__file__).resolve().parent.parent
TRACE = "sample_traces/synthetic_transformer_train.json.gz"
GPUS = ("h100-sxm", "l40s", "mi300x")
WIDTH = 108

TEMPLATE = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def main() -> None:
    """Write docs/predict.svg, or the file named on the command line."""
    os.chdir(ROOT)
    run = prepare(tracekit.load(TRACE))
    report = build(run, tuple(predict(run, GPUS).values()))
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(predicted(report, top=8))
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "predict.svg"
    title = f"tracekit predict {TRACE} --gpu " + " --gpu ".join(GPUS)
    target.write_text(console.export_svg(title=title, theme=MONOKAI, code_format=TEMPLATE, unique_id="tk"))
    print(f"Wrote {target}")


if __name__ == "__main__":
    main()
