"""Turns the profile of a CPU run into the trace that a GPU would plausibly have left."""
