"""Messages about stored reports."""

from tracekit.messages.model import error, name_templates

NOT_A_REPORT = error("This is not a report that version {version} of tracekit wrote.", "Build the report again.")

name_templates(globals())
