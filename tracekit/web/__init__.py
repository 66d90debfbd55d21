"""The web page and its API: uploads, jobs in worker processes, reports. Needs the extra ``web``."""
