"""What the trace records."""
