"""Checks that the ports of a cluster are free before anything starts, so that the error is one
clear line.
"""

import errno
import os
import socket
from collections.abc import Iterator
from typing import Final

from kraftsim.cluster.spec import (
    CONTROLLER_PORT_DISTANCE,
    LOOPBACK,
    PROXY_PORT_DISTANCE,
    ZOOKEEPER_PORT_DISTANCE,
    ClusterSpec,
    SpecError,
)

FIRST_PORT: Final = 12_000
LAST_PORT: Final = 32_000
"""Linux allocates ephemeral ports from 32768 on, other systems from higher up."""
REGION_PORTS: Final = 1000
"""A process that looks for free ports claims a region for its lifetime: no other such process takes
a port there before the nodes listen.
"""
PLACES: Final = CONTROLLER_PORT_DISTANCE
"""The ports of a region that the first broker may have; controllers, ZooKeeper and the nodes behind
a proxy come above.
"""


class _Regions:
    """The regions of this process.

    The last port of each is bound, without a listener, so that other processes see the claim.
    """

    def __init__(self) -> None:
        self._owner = 0
        self._held: list[tuple[int, socket.socket]] = []
        self._next_place = 0

    def first_ports(self, width: int) -> Iterator[int]:
        """Yield each start of `width` adjacent ports, in the regions of this process and then in
        regions that it can claim, the latest used last.
        """
        if (
            self._owner != os.getpid()
        ):  # a forked child inherits the regions of its parent, which still uses them
            self._owner, self._held = os.getpid(), []
        count = PLACES - width + 1
        for region in self._regions():
            for _ in range(0, count, width):
                place = self._next_place % count
                self._next_place = place + width
                yield region + place

    def _regions(self) -> Iterator[int]:
        yield from [region for region, _ in self._held]
        number = (LAST_PORT - FIRST_PORT) // REGION_PORTS
        for step in range(number):
            region = FIRST_PORT + (self._owner + step) % number * REGION_PORTS
            if self._claim(region):
                yield region

    def _claim(self, region: int) -> bool:
        guard = socket.socket()
        try:
            guard.bind((LOOPBACK, region + REGION_PORTS - 1))
        except OSError:
            guard.close()
            return False
        self._held.append((region, guard))
        return True


_regions = _Regions()


def require_free_ports(spec: ClusterSpec) -> None:
    """Raise SpecError naming the first node whose port is taken or whose host is not an address of
    this machine.
    """
    for node in spec.nodes():
        for host, port in node.places:
            _require_free(node.name, host, port)


def _require_free(name: str, host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            choice = "--port" if error.errno == errno.EADDRINUSE else "--host"
            raise SpecError(
                f"{name} cannot listen on {host}:{port}: {error.strerror}; choose another {choice}"
            ) from error


def free_port_range(size: int, host: str = LOOPBACK, *, controllers: int = 1) -> int:
    """Return a port P such that P .. P+size-1, the ports of so many controllers above them, that of
    ZooKeeper, and those behind a proxy were all free just now.

    They lie below the ephemeral port range: an outgoing connection could take one of those while
    its broker is down. Other processes that call this look in other regions.
    """
    steps = (
        *range(size),
        *range(CONTROLLER_PORT_DISTANCE, CONTROLLER_PORT_DISTANCE + controllers),
        ZOOKEEPER_PORT_DISTANCE,
    )
    for first in _regions.first_ports(max(size, controllers)):
        if all(
            _is_free(host, first + step + behind)
            for step in steps
            for behind in (0, PROXY_PORT_DISTANCE)
        ):
            return first
    raise SpecError(f"no {size} neighbouring free ports were found on {host}")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
