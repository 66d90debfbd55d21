"""How the time of each kind of kernel follows from shape, datasheet and constants."""
