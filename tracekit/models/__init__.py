"""What is known of a model beside its trace: its configuration, what was captured of it, how it looks up rows."""
