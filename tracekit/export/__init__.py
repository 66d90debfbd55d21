"""What ``tracekit export`` writes: timelines and tables of every kernel, drawn from a measured run."""
