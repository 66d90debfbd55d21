"""Rules that infer what the trace does not record, each with its evidence and a name by which it is switched off."""
