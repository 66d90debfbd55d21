"""What a report consists of. To add a section: one file with a dataclass and ``build``, one line in build.py."""
