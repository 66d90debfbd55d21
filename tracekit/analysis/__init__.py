"""Questions to a replayed run: idle time and its causes, critical path, slack, sensitivity, contention, stragglers."""
