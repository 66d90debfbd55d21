"""Traces as other packages hold them; each package is imported in one file, and only when used."""
