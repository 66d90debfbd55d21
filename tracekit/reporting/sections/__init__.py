"""The report's sections. To add one: a file with a data class and a function that builds it, and a line in build.py."""
