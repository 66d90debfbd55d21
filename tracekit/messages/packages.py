"""Optional packages that are not installed."""

from tracekit.messages.model import error, name_templates

PACKAGE_MISSING = error("{distribution} can't be imported ({reason}).", "`pip install {install}`")
EXTRA_MISSING = error("{distribution} can't be imported ({reason}).", "`pip install 'tracekit-gpu[{extra}]'`")

name_templates(globals())
