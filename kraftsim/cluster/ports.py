"""Are the ports of a cluster free? Asked before anything starts, so that the answer is one clear line."""

import errno
import itertools
import os
import socket
from typing import Final

from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, PROXY_PORT_DISTANCE, ZOOKEEPER_PORT_DISTANCE, ClusterSpec, SpecError

FIRST_PORT: Final = 12_000
LAST_PORT: Final = 32_000
"""Linux hands out ports from 32768 on, others from higher up."""
ATTEMPTS: Final = 500
_calls = itertools.count()


def require_free_ports(spec: ClusterSpec) -> None:
    """Raise SpecError naming the first node whose port is taken or whose host is not an address of this machine."""
    for node in spec.nodes():
        for host, port in dict.fromkeys([(node.host, node.port), (node.listens_host, node.listens_port)]):
            _require_free(node.name, host, port)


def _require_free(name: str, host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as trouble:
            choice = "--port" if trouble.errno == errno.EADDRINUSE else "--host"
            raise SpecError(f"{name} cannot listen on {host}:{port}: {trouble.strerror}; choose another {choice}") from trouble


def free_port_range(size: int, host: str = "127.0.0.1", *, controllers: int = 1) -> int:
    """Return a port P such that P .. P+size-1, the ports of so many controllers above them, that of ZooKeeper, and those behind a proxy
    were all free a moment ago.

    They lie below the ports that an operating system hands out to whoever connects somewhere: one of those could be taken while its broker is down.
    Two processes look in different places first.
    """
    steps = (*range(size), *range(CONTROLLER_PORT_DISTANCE, CONTROLLER_PORT_DISTANCE + controllers), ZOOKEEPER_PORT_DISTANCE)
    begin = os.getpid() * 211 + next(_calls) * 2 * size
    for attempt in range(ATTEMPTS):
        first = FIRST_PORT + (begin + attempt * 17) % (LAST_PORT - FIRST_PORT)
        if all(_is_free(host, first + step + behind) for step in steps for behind in (0, PROXY_PORT_DISTANCE)):
            return first
    raise SpecError(f"no {size} neighbouring free ports were found on {host}")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
