"""All stored data of a server and its workers, opened from the settings."""

from dataclasses import dataclass
from typing import Self

from tracekit.errors import OutputError
from tracekit.messages import front_ends
from tracekit.web.database import WRITE_WAIT_S, Database
from tracekit.web.files import Files
from tracekit.web.jobs import JobQueue
from tracekit.web.settings import Settings
from tracekit.web.uploads import UploadStore


@dataclass(frozen=True, slots=True)
class Store:
    """Uploads, jobs and their files; several servers and workers can use one store at once."""

    database: Database
    files: Files
    uploads: UploadStore
    jobs: JobQueue

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Open the store; create missing directories readable by this user only, and bring its tables up to date.

        Raises:
            OutputError: The directory can't be created.
            TracekitError: The database can't be used.
        """
        from tracekit.web.upgrade import upgrade_tables  # which a worker needn't load

        store = cls.open_prepared(settings)
        try:
            upgrade_tables(store.database)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open_prepared(cls, settings: Settings, write_wait_s: float = WRITE_WAIT_S) -> Self:
        """Open a store whose tables are up to date.

        Args:
            settings: The server's settings.
            write_wait_s: Longest time that a change of the database waits for others.
        """
        try:
            settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                front_ends.DATA_DIRECTORY_UNUSABLE(path=str(settings.data), reason=error.strerror)
            ) from error
        database = Database(settings.data / "tracekit.sqlite", settings.database, write_wait_s)
        files = Files(settings.files or str(settings.data / "files"))
        uploads = UploadStore(settings, database, files)
        return cls(database, files, uploads, JobQueue(settings, database, files, uploads))

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def delete_expired(self) -> None:
        """Delete all expired jobs and uploads."""
        self.jobs.delete_expired()
        self.uploads.delete_expired()
