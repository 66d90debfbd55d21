"""How fast the host of a trace is, against the hosts of public traces, and which host is usual beside a GPU."""

from tracekit.hosts.fingerprint import HostSpeed, measure_host_speed
from tracekit.hosts.usual import UsualHost, find_usual_host

__all__ = ["HostSpeed", "UsualHost", "find_usual_host", "measure_host_speed"]
