"""The specification of a cluster: number of nodes, release, settings, and the property set of each
node.

Node ids follow one rule in all modes: brokers are 1, 2, ..., controllers 101, 102, ...; the name of
a node is its role and id (`controller-101`). A combined node, which has both roles, has the id and
the name of a broker: clients and replicas know it by these. It listens on both ports.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from protocol.uuids import uuid_text

FIRST_CONTROLLER_ID = 101
CONTROLLER_PORT_DISTANCE = 100
"""Distance of the first controller's port from that of the first broker."""
ZOOKEEPER_PORT_DISTANCE = 400
"""Distance of ZooKeeper's port from that of the first broker."""
PROXY_PORT_DISTANCE = 200
"""Behind a proxy, distance of the port on which a node listens from its advertised port."""
LOOPBACK = "127.0.0.1"
OUTGOING_NETWORK = "127.77.0."
"""Behind a proxy every node connects from a source address of its own, which identifies it to the
proxy; Linux has all of 127.0.0.0/8.
"""
HAS_OUTGOING_NETWORK = sys.platform == "linux"
CONTROLLERS_MAX = 9
"""Each of them replicates the whole metadata log; Kafka's operators use 3 or 5."""
INTERNAL_REPLICAS = 3
"""Kafka's internal topics have a replication factor of 3, and are not created with fewer brokers; a
smaller cluster gets a lower one, as in Kafka's quick start.
"""
TRANSACTION_STATE_IN_SYNC = 2
"""The default of transaction.state.log.min.isr."""
ZOOKEEPER_NAME = "zookeeper-1"
ZOOKEEPER_TICK_MS = 500
"""Interval at which sessions are checked."""
ZOOKEEPER_SESSION_MS = 6000
"""Shorter than Kafka's own 18 s, so that a cluster on one machine soon detects dead nodes."""
DEPARTURE_BACKOFF_MS = 500
"""Brokers that stop together send requests to a controller that may have stopped, too; Kafka's
default of 5 s would be long for that.
"""
REGISTRATION_WAIT_MS = 60_000
"""A broker that restarts after a kill waits until its former session has expired, as with a
supervisor that restarts it repeatedly.
"""
CLIENT_LISTENER = "PLAINTEXT"
CONTROLLER_LISTENER = "CONTROLLER"
RELEASE_KEY = "kraftsim.release"
MIGRATION_KEY = "zookeeper.metadata.migration.enable"
DEFAULT_CLUSTER_ID = "a3JhZnRzaW0tY2x1c3RlcQ"
"""22 characters of base64, as Kafka's own cluster ids."""


class SpecError(ValueError):
    """An invalid cluster specification, in one line that says what to change."""


class Role(StrEnum):
    """The role of a node; the value is that of Kafka's `process.roles`."""

    BROKER = "broker"
    CONTROLLER = "controller"
    COMBINED = "broker,controller"
    """A broker and a controller in one process."""
    ZOOKEEPER = "zookeeper"
    """Not one of Kafka's roles: the server in which brokers in ZooKeeper mode keep their
    metadata.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    """One node: its identity, its address, and its Kafka properties (without directories, which
    depend on the mode).

    It listens on its advertised address, unless the cluster is behind a proxy. `outgoing_host` is
    the source address of its connections, if it has one of its own.
    """

    name: str
    node_id: int
    role: Role
    host: str
    port: int
    listens_host: str
    listens_port: int
    outgoing_host: str | None
    properties: Mapping[str, str]
    controller_port: int = 0
    """The port of a combined node for controllers, on the same host; 0: the node has one role."""
    controller_listens_port: int = 0

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        """The advertised addresses, and those that it listens on if they differ."""
        ports = [(self.port, self.listens_port)]
        if self.controller_port:
            ports.append((self.controller_port, self.controller_listens_port))
        return tuple(
            dict.fromkeys(
                place
                for advertised, listens in ports
                for place in ((self.host, advertised), (self.listens_host, listens))
            )
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSpec:
    """A whole cluster.

    `settings` go to every node, `node_settings[name]` to one; both are Kafka properties and
    override the derived ones.
    """

    controllers: int = 1
    brokers: int = 3
    combined: int = 0
    """How many of the brokers, the first ones, are controllers as well: they count as both."""
    release: str = "3.9"
    host: str = "127.0.0.1"
    port: int = 9092
    cluster_id: str = DEFAULT_CLUSTER_ID
    seed: int = 0
    run: str = "run"
    bugs: tuple[str, ...] = ()
    first_voters: int = 0
    """0: a static quorum (controller.quorum.voters).

    Else so many controllers format a dynamic quorum; the others may be added as voters.
    """
    zookeeper: bool = False
    """Whether the brokers keep their metadata in ZooKeeper, of which there is one server then.
    Controllers beside it are the KRaft controllers of a migration (KIP-866): there may be none.
    """
    behind_proxy: bool = False
    """Whether there is a proxy in front of every node, which injects network faults.

    In simulation the network itself does.
    """
    settings: Mapping[str, str] = field(default_factory=dict)
    node_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (0 if self.zookeeper else 1) <= self.controllers <= CONTROLLERS_MAX:
            raise SpecError(
                f"a quorum has 1 to {CONTROLLERS_MAX} controllers, not {self.controllers}"
            )
        if not 0 <= self.combined <= min(self.controllers, self.brokers):
            raise SpecError(
                f"{self.combined} nodes cannot be brokers and controllers at once where there are "
                f"{self.brokers} brokers and {self.controllers} controllers"
            )
        if self.combined and self.zookeeper:
            raise SpecError("brokers in ZooKeeper mode cannot be controllers of a quorum as well")
        if not 0 <= self.first_voters <= self.controllers:
            raise SpecError(
                f"{self.first_voters} controllers cannot be the first voters where there are "
                f"{self.controllers}"
            )
        if not 1 <= self.brokers <= CONTROLLER_PORT_DISTANCE:
            raise SpecError(
                f"a cluster has 1 to {CONTROLLER_PORT_DISTANCE} brokers, not {self.brokers}"
            )
        if not 1 <= self.port <= 65535 - CONTROLLER_PORT_DISTANCE - self.controllers - self._behind:
            raise SpecError(
                f"port {self.port} is too high: the controllers would listen at "
                f"{self.port + CONTROLLER_PORT_DISTANCE}"
            )
        if self.zookeeper and self.port + ZOOKEEPER_PORT_DISTANCE + self._behind > 65535:
            raise SpecError(
                f"port {self.port} is too high: ZooKeeper would listen at "
                f"{self.port + ZOOKEEPER_PORT_DISTANCE}"
            )
        unknown = sorted(set(self.node_settings) - set(self.node_names))
        if unknown:
            raise SpecError(
                f"settings name a node that is not there: {unknown[0]} (nodes: "
                f"{', '.join(self.node_names)})"
            )

    @property
    def controller_names(self) -> tuple[str, ...]:
        """Names of the controllers, in order of their ids; combined nodes have those of brokers."""
        return self.combined_names + tuple(
            f"controller-{FIRST_CONTROLLER_ID + index}"
            for index in range(self.combined, self.controllers)
        )

    @property
    def combined_names(self) -> tuple[str, ...]:
        """Names of the combined nodes."""
        return self.broker_names[: self.combined]

    @property
    def broker_names(self) -> tuple[str, ...]:
        """Names of the brokers, in order of their ids."""
        return tuple(f"broker-{1 + index}" for index in range(self.brokers))

    @property
    def node_names(self) -> tuple[str, ...]:
        """All names: ZooKeeper, controllers, brokers, which is the order in which nodes are
        started.
        """
        return self.zookeeper_names + self.controller_names + self.broker_names[self.combined :]

    def restart_order(self, active: str) -> tuple[str, ...]:
        """Return the order of a rolling upgrade, as in Kafka's guides: brokers, then controllers,
        the `active` one last.
        """
        controllers = self.controller_names
        return (
            *(name for name in self.broker_names if name not in controllers),
            *(name for name in controllers if name != active),
            *(name for name in controllers if name == active),
        )

    @property
    def zookeeper_names(self) -> tuple[str, ...]:
        """The name of the ZooKeeper server, if there is one."""
        return (ZOOKEEPER_NAME,) if self.zookeeper else ()

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients."""
        return ",".join(f"{node.host}:{node.port}" for node in map(self.node, self.broker_names))

    def nodes(self, *, host_is_name: bool = False) -> tuple[NodeSpec, ...]:
        """Return every node in order.

        With `host_is_name` each node has a host of its own, called like it (simulation,
        containers).
        """
        return tuple(self._node(name, host_is_name) for name in self.node_names)

    def node(self, name: str, *, host_is_name: bool = False) -> NodeSpec:
        """Return one node by name. Raises SpecError if the cluster has none of that name."""
        if name not in self.node_names:
            raise SpecError(f"no node is called {name} (nodes: {', '.join(self.node_names)})")
        return self._node(name, host_is_name)

    @property
    def _behind(self) -> int:
        """Distance of the port on which a node listens from its advertised port."""
        return PROXY_PORT_DISTANCE if self.behind_proxy else 0

    def _node(self, name: str, host_is_name: bool) -> NodeSpec:
        role_word, _, id_text = name.partition("-")
        role, node_id = Role(role_word), int(id_text)
        host, port = self._address(name, role, node_id, host_is_name)
        is_behind = self.behind_proxy and not host_is_name
        if role is Role.ZOOKEEPER:
            return self._zookeeper_node(name, host, port, is_behind=is_behind)
        is_broker = role is Role.BROKER
        listener = CLIENT_LISTENER if is_broker else CONTROLLER_LISTENER
        controller_port = 0
        if name in self.combined_names:
            role = Role.COMBINED
            _, controller_port = self._controller_address(node_id - 1, host_is_name)
        listens_host, listens_port = (
            (LOOPBACK, port + PROXY_PORT_DISTANCE) if is_behind else (host, port)
        )
        outgoing_host = (
            f"{OUTGOING_NETWORK}{node_id}"
            if is_behind and host == LOOPBACK and HAS_OUTGOING_NETWORK
            else None
        )
        behind = PROXY_PORT_DISTANCE if is_behind else 0
        also = [(CONTROLLER_LISTENER, controller_port)] if controller_port else []
        properties = {
            "listeners": ",".join(
                f"{name}://{listens_host}:{at + behind}" for name, at in [(listener, port), *also]
            ),
            "listener.security.protocol.map": (
                f"{CLIENT_LISTENER}:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT"
            ),
            **(
                self._in_zookeeper(node_id, host_is_name)
                if self.zookeeper and is_broker
                else self._in_quorum(role, node_id, host_is_name)
            ),
            **self._of_ours(name),
        }
        if is_broker:
            properties["inter.broker.listener.name"] = CLIENT_LISTENER
            replicas = min(self.brokers, INTERNAL_REPLICAS)
            properties["offsets.topic.replication.factor"] = str(replicas)
            properties["transaction.state.log.replication.factor"] = str(replicas)
            in_sync = str(min(replicas, TRANSACTION_STATE_IN_SYNC))
            properties["transaction.state.log.min.isr"] = in_sync
            properties["share.coordinator.state.topic.replication.factor"] = str(replicas)
            properties["share.coordinator.state.topic.min.isr"] = in_sync
        if is_behind:
            properties["advertised.listeners"] = ",".join(
                f"{name}://{host}:{at}" for name, at in [(listener, port), *also]
            )
        if outgoing_host is not None:
            properties["kraftsim.outgoing.host"] = outgoing_host
        if self.bugs:
            properties["kraftsim.bugs"] = ",".join(self.bugs)
        properties.update(self.settings)
        properties.update(self.node_settings.get(name, {}))
        return NodeSpec(
            name=name,
            node_id=node_id,
            role=role,
            host=host,
            port=port,
            listens_host=listens_host,
            listens_port=listens_port,
            outgoing_host=outgoing_host,
            properties=properties,
            controller_port=controller_port,
            controller_listens_port=controller_port + behind if controller_port else 0,
        )

    def _of_ours(self, name: str) -> dict[str, str]:
        return {
            "kraftsim.cluster.id": self.cluster_id,
            "kraftsim.release": self.release,
            "kraftsim.run": self.run,
            "kraftsim.node.name": name,
            "kraftsim.seed": str(self.seed),
        }

    def _in_quorum(self, role: Role, node_id: int, host_is_name: bool) -> dict[str, str]:
        """Return the properties of a KRaft node that locate its metadata."""
        takes_over = role is Role.CONTROLLER and self.zookeeper
        return {
            "process.roles": role.value,
            "node.id": str(node_id),
            **self.quorum_settings(host_is_name=host_is_name, role=role),
            **(
                {"zookeeper.connect": self._zookeeper_address(host_is_name), MIGRATION_KEY: "true"}
                if takes_over
                else {}
            ),
        }

    def _in_zookeeper(self, node_id: int, host_is_name: bool) -> dict[str, str]:
        """Return the properties of a broker in ZooKeeper mode that locate its metadata."""
        return {
            "broker.id": str(node_id),
            "zookeeper.connect": self._zookeeper_address(host_is_name),
            "zookeeper.session.timeout.ms": str(ZOOKEEPER_SESSION_MS),
            "controlled.shutdown.retry.backoff.ms": str(DEPARTURE_BACKOFF_MS),
            "kraftsim.registration.wait.ms": str(REGISTRATION_WAIT_MS),
        }

    def quorum_settings(self, *, host_is_name: bool, role: Role = Role.BROKER) -> dict[str, str]:
        """Return the settings that locate the controllers: with
        `zookeeper.metadata.migration.enable` those of a migrating broker.
        """
        return {
            "controller.listener.names": CONTROLLER_LISTENER,
            **self._quorum(role, host_is_name),
        }

    def migrating_settings(self, *, host_is_name: bool) -> dict[str, str | None]:
        """Return the settings that turn a broker in ZooKeeper mode into a migrating broker at its
        next start.
        """
        return {MIGRATION_KEY: "true", **self.quorum_settings(host_is_name=host_is_name)}

    def kraft_settings(self, name: str, *, host_is_name: bool) -> dict[str, str | None]:
        """Return the settings that turn a broker in ZooKeeper mode into a KRaft broker; None
        removes a setting.
        """
        _, _, id_text = name.partition("-")
        gone: dict[str, str | None] = dict.fromkeys(self._in_zookeeper(int(id_text), host_is_name))
        return {
            **gone,
            MIGRATION_KEY: None,
            **self._in_quorum(Role.BROKER, int(id_text), host_is_name),
        }

    def _zookeeper_address(self, host_is_name: bool) -> str:
        host, port = self._address(ZOOKEEPER_NAME, Role.ZOOKEEPER, 1, host_is_name)
        return f"{host}:{port}"

    def _zookeeper_node(self, name: str, host: str, port: int, *, is_behind: bool) -> NodeSpec:
        listens_host, listens_port = (
            (LOOPBACK, port + PROXY_PORT_DISTANCE) if is_behind else (host, port)
        )
        own = {
            "clientPort": str(listens_port),
            "clientPortAddress": listens_host,
            "tickTime": str(ZOOKEEPER_TICK_MS),
            "maxClientCnxns": "0",
        }
        return NodeSpec(
            name=name,
            node_id=1,
            role=Role.ZOOKEEPER,
            host=host,
            port=port,
            listens_host=listens_host,
            listens_port=listens_port,
            outgoing_host=None,
            properties={**own, **self._of_ours(name), **self.node_settings.get(name, {})},
        )

    def _address(self, name: str, role: Role, node_id: int, host_is_name: bool) -> tuple[str, int]:
        first = {
            Role.BROKER: 0,
            Role.CONTROLLER: CONTROLLER_PORT_DISTANCE,
            Role.ZOOKEEPER: ZOOKEEPER_PORT_DISTANCE,
        }[role]
        if host_is_name:
            return name, self.port + first
        return self.host, self.port + first + node_id - (
            FIRST_CONTROLLER_ID if role is Role.CONTROLLER else 1
        )

    def _controller_address(self, index: int, host_is_name: bool) -> tuple[str, int]:
        """Return where a controller is reached, by its place in `controller_names`."""
        return self._address(
            self.controller_names[index],
            Role.CONTROLLER,
            FIRST_CONTROLLER_ID + (0 if host_is_name else index),
            host_is_name,
        )

    def _quorum(self, role: Role, host_is_name: bool) -> dict[str, str]:
        """Return the properties that locate the controllers."""
        found = []
        for index, name in enumerate(self.controller_names):
            host, port = self._controller_address(index, host_is_name)
            node_id = int(name.partition("-")[2])
            found.append((node_id, f"{host}:{port}", directory_id(self.seed, name)))
        if not self.first_voters:
            return {
                "controller.quorum.voters": ",".join(
                    f"{node_id}@{address}" for node_id, address, _ in found
                )
            }
        properties = {
            "controller.quorum.bootstrap.servers": ",".join(address for _, address, _ in found)
        }
        if role is not Role.BROKER:
            first = found[: self.first_voters]
            properties["kraftsim.initial.controllers"] = ",".join(
                f"{node_id}@{address}:{uuid}" for node_id, address, uuid in first
            )
        return properties


def directory_id(seed: int, name: str) -> str:
    """Return the directory id of a first voter, as text: all voters are configured with it before
    any of them has a directory.
    """
    return uuid_text(b"\x01" + sha256(f"{seed}/{name}".encode()).digest()[:15])


def override(
    overrides: dict[str, str], settings: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Override settings of a node on top of its own properties, None for the original value; return
    the former overrides.
    """
    before = {key: overrides.get(key) for key in settings}
    for key, value in settings.items():
        if value is None:
            overrides.pop(key, None)
        else:
            overrides[key] = value
    return before


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the properties as a Java properties file, sorted by key."""
    return "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))


# --------------------------------------------------------------------------------------------------
# The properties with which a broker of Apache Kafka joins a running cluster, taken from the
# property files of the cluster's own nodes
#
# Source: process.roles, controller.quorum.voters and controller.quorum.bootstrap.servers of
# kafka.server.KafkaConfig; KIP-853.

QUORUM_KEYS = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
"""A static quorum is configured with all voters, a dynamic one with bootstrap servers."""
ONE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Apache Kafka's internal topics need three brokers by default, and this cluster may have fewer."""


class NothingToJoin(ValueError):
    """There is no such cluster, or the node does not fit into it; one line."""


def broker_properties(
    nodes: Sequence[Mapping[str, str]], *, node_id: int, host: str, port: int, log_dir: Path
) -> dict[str, str]:
    """Return the server.properties of a broker that joins nodes with these properties.

    Raises NothingToJoin.
    """
    if not nodes:
        raise NothingToJoin("there is no cluster: `kraftsim up` writes the properties of its nodes")
    taken = sorted(int(node["node.id"]) for node in nodes)
    if node_id in taken:
        raise NothingToJoin(
            f"node {node_id} is there already (nodes: {', '.join(map(str, taken))}); choose "
            "another --node-id"
        )
    address = f"{host}:{port}"
    if any(
        address == listener.partition("://")[2]
        for node in nodes
        for listener in node["listeners"].split(",")
    ):
        raise NothingToJoin(
            f"{address} is where a node of the cluster listens; choose another --port"
        )
    quorum = {key: nodes[0][key] for key in QUORUM_KEYS if key in nodes[0]}
    return {
        "process.roles": "broker",
        "node.id": str(node_id),
        **quorum,
        "controller.listener.names": CONTROLLER_LISTENER,
        "listener.security.protocol.map": (
            f"{CLIENT_LISTENER}:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT"
        ),
        "listeners": f"{CLIENT_LISTENER}://{address}",
        "inter.broker.listener.name": CLIENT_LISTENER,
        "log.dirs": str(log_dir),
        **ONE_REPLICA,
    }


def server_properties_text(properties: Mapping[str, str], cluster_id: str) -> str:
    """Return the properties as a file with usage instructions at its beginning."""
    usage = [
        "# kafka-storage.sh format --config THIS_FILE --cluster-id " + cluster_id,
        "# kafka-server-start.sh THIS_FILE",
    ]
    return "\n".join([*usage, *(f"{key}={value}" for key, value in properties.items()), ""])
