"""The report, drawn: one file per format."""
