"""Resumable uploads by the protocol, and plain ones."""
