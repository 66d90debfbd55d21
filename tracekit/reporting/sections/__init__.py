"""The report's sections. To add one: a data class, its function, a line in build.py."""
