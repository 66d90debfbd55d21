"""Serving a language model: a loop of engine steps over requests, the cache's memory, and what a user waits for."""
