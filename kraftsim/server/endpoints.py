"""Endpoints of nodes: parsers for `listeners`, `advertised.listeners` and
`controller.quorum.voters`.

The name of a listener, not its port, determines its security protocol and whether it belongs to the
controllers.

Source: kafka.cluster.EndPoint, kafka.utils.CoreUtils.listenerListToEndPoints,
org.apache.kafka.raft.QuorumConfig.
"""

import re
from dataclasses import dataclass

from protocol.uuids import parse_uuid_text, uuid_text

LOOPBACK = "127.0.0.1"
ANY_ADDRESSES = ("0.0.0.0", "::")
LAST_PORT = 65535
ZOOKEEPER_PORT = 2181
_ENDPOINT = re.compile(r"([A-Za-z0-9_.\-]+)://(?:\[([0-9a-fA-F:.%]+)\]|([^\[\]:/]*)):(\d+)")
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^\[\]:/]+)):(\d+)")
_VOTER = re.compile(r"(\d+)@(?:\[([0-9a-fA-F:.%]+)\]|([^\[\]:/]+)):(\d+)")


@dataclass(frozen=True, slots=True)
class ListenerEndpoint:
    """A listener and its address.

    An empty host means loopback (Kafka: every interface), port 0 any free port.
    """

    listener: str
    host: str
    port: int

    @property
    def bind_host(self) -> str:
        """The address to bind."""
        return self.host or LOOPBACK

    def __str__(self) -> str:
        return f"{self.listener}://{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class VoterAddress:
    """A controller of the quorum, as `id@host:port`."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node_id}@{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class ZookeeperAddresses:
    """The addresses of ZooKeeper, and the chroot of the cluster ("" for the root)."""

    servers: tuple[tuple[str, int], ...] = ()
    chroot: str = ""

    def __bool__(self) -> bool:
        return bool(self.servers)


@dataclass(frozen=True, slots=True)
class InitialController:
    """An initial voter of a dynamic quorum, as `id@host:port:directory id`."""

    voter: VoterAddress
    directory_id: bytes

    def __str__(self) -> str:
        return f"{self.voter}:{uuid_text(self.directory_id)}"


def parse_endpoints(text: str) -> tuple[ListenerEndpoint, ...]:
    """Parse `NAME://host:port,...`.

    Listener names are converted to upper case, as in Kafka. Raises ValueError.
    """
    endpoints = tuple(_parse_endpoint(part.strip()) for part in text.split(",") if part.strip())
    _refuse_repeats("listener name", [endpoint.listener for endpoint in endpoints])
    return endpoints


def parse_voters(text: str) -> tuple[VoterAddress, ...]:
    """Parse `id@host:port,...`. Raises ValueError."""
    voters = tuple(_parse_voter(part.strip()) for part in text.split(",") if part.strip())
    _refuse_repeats("voter id", [str(voter.node_id) for voter in voters])
    return voters


def parse_initial_controllers(text: str) -> tuple[InitialController, ...]:
    """Parse `id@host:port:directory id,...`, the format of kafka-storage format
    --initial-controllers.

    Raises ValueError.
    """
    found = []
    for part in text.split(","):
        if part.strip():
            voter, _, directory_id = part.strip().rpartition(":")
            found.append(InitialController(_parse_voter(voter), parse_uuid_text(directory_id)))
    _refuse_repeats("voter id", [str(each.voter.node_id) for each in found])
    return tuple(found)


def parse_addresses(text: str) -> tuple[tuple[str, int], ...]:
    """Parse `host:port,...`. Raises ValueError."""
    return tuple(_parse_address(part.strip()) for part in text.split(",") if part.strip())


def parse_zookeeper(text: str) -> ZookeeperAddresses:
    """Parse `host:port,host:port/chroot`, the connect string of ZooKeeper clients; ports are
    optional.

    Raises ValueError.
    """
    servers, slash, below = text.partition("/")
    chroot = f"/{below.rstrip('/')}" if slash and below.rstrip("/") else ""
    if chroot and ("//" in chroot or any(part in (".", "..") for part in chroot.split("/"))):
        raise ValueError(f"{chroot!r} is not a znode path")
    found = []
    for part in (each.strip() for each in servers.split(",")):
        if part:
            found.append(
                _parse_address(part if _ADDRESS.fullmatch(part) else f"{part}:{ZOOKEEPER_PORT}")
            )
    return ZookeeperAddresses(tuple(found), chroot)


def _parse_address(text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > LAST_PORT:
        raise ValueError(f"{text!r} is not of the form host:port")
    return match[1] or match[2], int(match[3])


def _parse_endpoint(text: str) -> ListenerEndpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[4]) > LAST_PORT:
        raise ValueError(f"{text!r} is not of the form NAME://host:port")
    return ListenerEndpoint(match[1].upper(), match[2] or match[3], int(match[4]))


def _parse_voter(text: str) -> VoterAddress:
    match = _VOTER.fullmatch(text)
    if match is None or int(match[4]) > LAST_PORT:
        raise ValueError(f"{text!r} is not of the form id@host:port")
    return VoterAddress(int(match[1]), match[2] or match[3], int(match[4]))


def _refuse_repeats(what: str, values: list[str]) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{what} {value} is given twice")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
