"""Do other tools count the same work and the same times, and read what tracekit exports?"""

TABLES = ("work", "times", "exports")
