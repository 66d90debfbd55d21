"""A comparison as a self-contained page."""

from markupsafe import Markup

from tracekit.render.compare import difference, differences, doubts, only, part, work_done, worth
from tracekit.render.html.environment import asset, environment, script_source
from tracekit.reporting.comparison import Comparison


def comparison_page(comparison: Comparison, top: int) -> str:
    """Two runs side by side as HTML, which asks nobody for anything.

    Args:
        comparison: The two runs.
        top: How many kernels to show of those in both, of the new and of the vanished ones.
    """
    script = asset("compare.js")
    return (
        environment()
        .get_template("compare.html")
        .render(
            comparison=comparison,
            difference=difference(comparison),
            done=work_done(comparison),
            differences=list(differences(comparison)),
            doubts=list(doubts(comparison)),
            part=part,
            only=only,
            changes=worth(comparison),
            longest=max(side.high_us or side.step_time_us for side in (comparison.a, comparison.b)),
            top=top,
            style=Markup(asset("style.css")),
            script=Markup(script),
            script_source=script_source(script.encode()),
        )
    )
