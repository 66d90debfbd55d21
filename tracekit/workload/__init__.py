"""Build the kernel table of a trace: what each GPU activity is, what launched it, and the work it does."""
