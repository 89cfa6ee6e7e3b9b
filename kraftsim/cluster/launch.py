"""The composition root: from a property set to a running node, with the parts of its release and of
the injected bugs.

No other module assembles a node; all three modes use this one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeAlias

from kraftsim.cluster.spec import ClusterSpec
from kraftsim.cluster.zookeeper_node import ZookeeperNodeConfig, is_zookeeper
from kraftsim.lab.bugs.bug import bug
from kraftsim.releases.release import release
from kraftsim.server.config import NodeConfig
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.identity import belonging_to_its_directories
from kraftsim.server.parts import Parts
from kraftsim.server.release_modes import parts_for
from kraftsim.world.interface import World
from kraftsim.world.real.event_file import next_incarnation
from kraftsim.world.real.world import RealWorld, real_world

EVENTS_BESIDE_DATA = "events"
"""The default place of the event log of a node: a directory beside its data."""


AnyConfig: TypeAlias = NodeConfig | ZookeeperNodeConfig
"""The configuration of a node: a Kafka node, or a ZooKeeper server."""


def parse_node(properties: Mapping[str, str]) -> AnyConfig:
    """Validate a property set; its keys determine the kind of node.

    Raises ConfigError: one line, naming the key.
    """
    return (
        ZookeeperNodeConfig.parse(properties)
        if is_zookeeper(properties)
        else NodeConfig.parse(properties)
    )


def parts_of(config: NodeConfig) -> Parts:
    """Return the parts of the node's release, with the parts of each chosen bug swapped in, in the
    order in which the bugs are named.

    Raises KeyError with a readable message for an unknown bug or release, ConfigError for a release
    that does not support the configuration.
    """
    parts = parts_for(config, release(config.release))
    for name in config.bugs:
        parts = bug(name).into(parts)
    return parts


def client_parts_of(spec: ClusterSpec) -> Parts:
    """Return the parts of kraftsim's own clients in a cluster: a bug may be one of theirs as well
    as of a node.
    """
    parts = Parts.for_release(release(spec.release))
    for name in spec.bugs:
        parts = bug(name).into(parts)
    return parts


def require_valid(spec: ClusterSpec) -> None:
    """Validate the configuration of every node of a cluster before any of them starts.

    Raises ConfigError or KeyError: one line.
    """
    for node in spec.nodes():
        require_valid_node({"log.dirs": node.name, **node.properties})


def require_valid_node(properties: Mapping[str, str]) -> None:
    """Raise ConfigError or KeyError, one line, if no node could start with these properties."""
    config = parse_node(properties)
    if isinstance(config, NodeConfig):
        parts_of(config)


def real_world_of(config: AnyConfig, started_ns: int, *, is_durable: bool = True) -> RealWorld:
    """Return the real world of a node: its data directory, its next event file, its clock.

    `started_ns` is the origin of the event timestamps of this node on the monotonic clock, unless
    the configuration has that of the run. Without `is_durable` nothing waits for the disk.
    """
    data = Path(config.log_dir)
    events = (
        Path(config.events_dir)
        if config.events_dir is not None
        else data.parent / EVENTS_BESIDE_DATA
    )
    return real_world(
        run=config.run,
        node=config.node_name,
        incarnation=next_incarnation(events, config.node_name),
        data_dir=data,
        events_dir=events,
        seed=config.seed or None,
        started_ns=config.run_started_ns if config.run_started_ns is not None else started_ns,
        is_durable=is_durable,
    )


# --------------------------------------------------------------------------------------------------
# The lifecycle interface of nodes, for every role, in simulated and real time


class Node(Protocol):
    """A broker or a controller.

    Call `start` once, then `stop` or `abort` once; a stopped node is not restarted.
    """

    @property
    def addresses(self) -> Mapping[str, ListenerEndpoint]:
        """Listener name -> bound endpoint; empty before `start` returned."""
        ...

    async def start(self) -> None:
        """Recover the disk and open the listeners.

        Raises ConfigError, OSError kinds; then nothing is left open.
        """
        ...

    async def ready(self) -> None:
        """Wait until the node serves clients: a broker is unfenced, a controller is leader or
        follower. Raises the node's earlier failure.
        """
        ...

    async def failed(self) -> BaseException:
        """Wait until the node fails, and return the reason; a healthy node never does."""
        ...

    async def stop(self) -> None:
        """Shut down cleanly: hand over leadership, answer pending requests, flush, and mark the
        logs as clean.
        """
        ...

    def abort(self) -> None:
        """Stop immediately, as a killed process would: no flush, no clean-shutdown marker, no
        requests to other nodes.
        """
        ...


def build_node(config: AnyConfig, world: World, parts: Parts | None = None) -> Node:
    """Assemble a node; nothing runs until its `start`. What it is made of is imported here: a
    controller needs nothing of a broker.
    """
    if isinstance(config, ZookeeperNodeConfig):
        from kraftsim.zookeeper.server import ZookeeperServer

        return ZookeeperServer(world, config.settings)
    chosen = parts_of(config) if parts is None else parts
    config = belonging_to_its_directories(config, world)
    if config.is_combined:
        from kraftsim.server.combined import CombinedNode

        return CombinedNode(world, config, chosen)
    if config.is_controller:
        from kraftsim.server.controller import Controller

        return Controller(world, config, chosen)
    from kraftsim.server.broker import Broker

    return Broker(world, config, chosen)
