"""Replay: compute when every node of the dependency graph would start and end."""
