"""Optional packages that are not installed."""

from tracekit.messages.model import Severity, Template

PACKAGE_MISSING = Template(
    "package-missing", Severity.ERROR, "{distribution} can't be imported ({reason}).", "`pip install {install}`"
)
EXTRA_MISSING = Template(
    "extra-missing",
    Severity.ERROR,
    "{distribution} can't be imported ({reason}).",
    "`pip install 'tracekit-gpu[{extra}]'`",
)
