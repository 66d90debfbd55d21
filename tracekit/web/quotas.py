"""Who sends a request, and quotas of each owner and each network: owners are free to make up, networks aren't."""

import hashlib
import ipaddress
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, func, select

from tracekit.messages import front_ends
from tracekit.web.database import DELETED, JOBS, QUEUED, UPLOADS
from tracekit.web.errors import TooLargeError, TooManyError
from tracekit.web.settings import Settings

# Owner of requests without a cookie on a server without a token: only programs on this machine can send them.
LOCAL_OWNER = "local"

IPV6_PREFIX_BITS = 64
"""A site has all addresses of such a prefix, so that they count as one (RFC 6177)."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Who sends a request.

    Attributes:
        owner: Hash of the secret that a browser or a program sends; one client can have many.
        network: Hash of the client's address; of an IPv6 address, of its site's prefix.
    """

    owner: str = LOCAL_OWNER
    network: str = ""


def hash_secret(secret: str) -> str:
    """Hash a secret or an address for storage."""
    return hashlib.blake2b(secret.encode(), digest_size=16).hexdigest()


def hash_network(address: str) -> str:
    """Hash a client's address: the part of it that the client can't choose."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return hash_secret(address)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if isinstance(ip, ipaddress.IPv6Address):
        return hash_secret(str(ipaddress.ip_network((ip, IPV6_PREFIX_BITS), strict=False)))
    return hash_secret(str(ip))


NETWORK_FACTOR = 4
"""A network may take this many times what an owner may: some have one address for several people."""

JOBS_PER_OWNER_AHEAD = 4
"""Jobs whose files an owner may upload before the first of them begins."""


def check_jobs(connection: Connection, settings: Settings, requester: Requester) -> None:
    """Check how many jobs are kept, and how many wait.

    Raises:
        TooManyError: There are too many.
    """
    for own, factor in _list_shares(JOBS.c.owner, JOBS.c.network, requester):
        most = factor * settings.max_jobs_per_owner
        if _count(connection, JOBS.c.id, own, JOBS.c.state != DELETED) >= most:
            raise TooManyError(front_ends.JOBS_TOO_MANY(most=most))
    check_queue(connection, settings, requester)


def check_queue(connection: Connection, settings: Settings, requester: Requester) -> None:
    """Check how many jobs wait.

    Raises:
        TooManyError: There are too many.
    """
    is_queued = JOBS.c.state == QUEUED
    count = _count(connection, JOBS.c.id, is_queued)
    if count >= settings.max_queued:
        raise TooManyError(front_ends.QUEUE_FULL(count=count, whose="jobs"))
    for own, factor in _list_shares(JOBS.c.owner, JOBS.c.network, requester):
        count = _count(connection, JOBS.c.id, own, is_queued)
        if count >= min(factor * settings.max_queued_per_owner, max(1, settings.max_queued // 2)):
            raise TooManyError(front_ends.QUEUE_FULL(count=count, whose="of your jobs"))


def check_upload_count(connection: Connection, settings: Settings, requester: Requester) -> None:
    """Check how many uploads wait for a job, the newest included.

    Raises:
        TooManyError: There are too many.
    """
    for own, factor in _list_shares(UPLOADS.c.owner, UPLOADS.c.network, requester):
        most = factor * JOBS_PER_OWNER_AHEAD * settings.max_files
        if _count(connection, UPLOADS.c.id, own, UPLOADS.c.job.is_(None)) > most:
            raise TooManyError(front_ends.UPLOADS_TOO_MANY(most=most))


def check_bytes(connection: Connection, settings: Settings, requester: Requester) -> None:
    """Check how many bytes are kept in uploads and reports, or reserved for them.

    Raises:
        TooLargeError: There are too many.
    """
    shares = zip(
        _list_shares(UPLOADS.c.owner, UPLOADS.c.network, requester),
        _list_shares(JOBS.c.owner, JOBS.c.network, requester),
        strict=True,
    )
    for (own_uploads, factor), (own_jobs, _) in shares:
        kept = _sum(connection, UPLOADS.c.reserved, own_uploads) + _sum(connection, JOBS.c.report_bytes, own_jobs)
        if kept > factor * settings.max_stored_bytes:
            raise TooLargeError(front_ends.QUOTA_USED_UP(max_bytes=factor * settings.max_stored_bytes))


def _list_shares(
    owner: ColumnElement[str], network: ColumnElement[str], requester: Requester
) -> list[tuple[ColumnElement[bool], int]]:
    """Return what is the owner's and what is the network's, and how many times an owner's quota each may take."""
    shares = [(owner == requester.owner, 1)]
    return [*shares, (network == requester.network, NETWORK_FACTOR)] if requester.network else shares


def _count(connection: Connection, column: ColumnElement[str], *conditions: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count(column)).where(*conditions)).scalar_one())


def _sum(connection: Connection, column: ColumnElement[int], condition: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.coalesce(func.sum(column), 0)).where(condition)).scalar_one())
