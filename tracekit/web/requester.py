"""Who sends a request: the owner of what it makes, and the network that it comes from."""

import hashlib
import ipaddress
from dataclasses import dataclass

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
