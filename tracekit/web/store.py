"""Everything that a server and its workers keep, opened from the settings."""

from dataclasses import dataclass
from typing import Self

from tracekit.errors import OutputError
from tracekit.web.database import Database
from tracekit.web.files import Files
from tracekit.web.jobs import Jobs
from tracekit.web.settings import Settings
from tracekit.web.uploads import Uploads


@dataclass(frozen=True, slots=True)
class Store:
    """Uploads, jobs and their files. Any number of servers and workers may use one store at the same time."""

    database: Database
    files: Files
    uploads: Uploads
    jobs: Jobs

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Open it; what is missing is made, for this user's eyes only.

        Raises:
            OutputError: Its directory can't be made.
        """
        try:
            settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"{settings.data} can't be made: {error.strerror}.", "Name another directory with --data."
            ) from error
        database = Database(settings.data / "tracekit.sqlite", settings.database)
        files = Files(settings.files or str(settings.data / "files"))
        uploads = Uploads(settings, database, files)
        return cls(database, files, uploads, Jobs(settings, database, files, uploads))

    def close(self) -> None:
        """Let go of it."""
        self.database.close()

    def sweep(self) -> None:
        """Delete what has expired, wholly."""
        self.jobs.sweep()
        self.uploads.sweep()
