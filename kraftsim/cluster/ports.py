"""Are the ports of a cluster free? Asked before anything starts, so that the answer is one clear line."""

import errno
import os
import socket
from collections.abc import Iterator
from typing import Final

from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, LOOPBACK, PROXY_PORT_DISTANCE, ZOOKEEPER_PORT_DISTANCE, ClusterSpec, SpecError

FIRST_PORT: Final = 12_000
LAST_PORT: Final = 32_000
"""Linux hands out ports from 32768 on, others from higher up."""
REGION_PORTS: Final = 1000
"""Who looks for free ports keeps a region to itself as long as it lives: what it found free nobody else takes before its nodes listen there."""
PLACES: Final = CONTROLLER_PORT_DISTANCE
"""Where the first broker may be in a region; controllers, ZooKeeper and what is behind a proxy come above."""


class _Regions:
    """The regions of this process. A port at the end of each is bound, and nobody listens there: so others see that it is taken."""

    def __init__(self) -> None:
        self._owner = 0
        self._held: list[tuple[int, socket.socket]] = []
        self._next_place = 0

    def first_ports(self, width: int) -> Iterator[int]:
        """Yield each place for `width` neighbouring nodes, in the regions of this process and then in such as it can get, the latest used last."""
        if self._owner != os.getpid():  # a child has what its parent had, which goes on using it
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


def free_port_range(size: int, host: str = LOOPBACK, *, controllers: int = 1) -> int:
    """Return a port P such that P .. P+size-1, the ports of so many controllers above them, that of ZooKeeper, and those behind a proxy
    were all free a moment ago.

    They lie below the ports that an operating system hands out to whoever connects somewhere: one of those could be taken while its broker is down.
    Other processes that ask look elsewhere.
    """
    steps = (*range(size), *range(CONTROLLER_PORT_DISTANCE, CONTROLLER_PORT_DISTANCE + controllers), ZOOKEEPER_PORT_DISTANCE)
    for first in _regions.first_ports(max(size, controllers)):
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
