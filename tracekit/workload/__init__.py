"""A trace to its kernel table: what each GPU activity is, who launched it, and the work it does."""
