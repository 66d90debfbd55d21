"""What is known of a model beside its trace: its configuration, its embedding tables, what was captured of it."""
