"""Render the report: one file per format."""
