"""The clusters and clients of `fuzz.answers`: KRaft and ZooKeeper mode, with and without an
authorizer.

Most clusters must serve a healthy producer all the time. Principals with all permissions there do
not send requests that legitimately end service (`LEFT_OUT`). Two further clusters get those
requests, too, and are recreated when they no longer serve (`fuzz.disposable`).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE, ClusterSpec
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.api_keys import ApiKey
from protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from protocol.requests import decode_response, request_chunks
from protocol.schema import Message, declaration_of

HEALTHY_TOPIC = "healthy"
TOPICS = (HEALTHY_TOPIC, "fuzzed", "secret")
OPEN, GUARDED, ZOOKEEPER = "open", "guarded", "zookeeper"
OBEDIENT, OBEDIENT_ZOOKEEPER = "obedient", "obedient zookeeper"
ARE_OBEDIENT: Final = frozenset((OBEDIENT, OBEDIENT_ZOOKEEPER))
"""Clusters that get requests which legitimately end service."""
PLACES: Final = (OPEN, GUARDED, ZOOKEEPER, OBEDIENT, OBEDIENT_ZOOKEEPER)
LISTENERS_MAX: Final = 2
"""Listeners of one node: without and with authentication."""
USERS: Final = {"admin": "a", "bob": "b", "carol": "c"}
"""admin has all permissions, carol has those of `rights`, bob has none."""
JAAS = (
    (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" '
        'password="a" '
    )
    + " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
    + ";"
)
SUPER_USERS = "User:ANONYMOUS;User:admin"
SASL = {
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,WATCHED:SASL_PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": JAAS,
    "super.users": SUPER_USERS,
}
SECURITY = {
    **SASL,
    "listener.name.watched.plain.sasl.jaas.config": JAAS,
    "controller.listener.names": "CONTROLLER,WATCHED",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
ZOOKEEPER_SECURITY = {**SASL, "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
LEFT_OUT: Final[Mapping[ApiKey, str]] = {
    ApiKey.VOTE: (
        "raises the epoch of the quorum, to the last one at worst: no leader can be elected "
        "after that"
    ),
    ApiKey.BEGIN_QUORUM_EPOCH: "raises the epoch of the quorum and names its leader",
    ApiKey.END_QUORUM_EPOCH: "makes the leader of the quorum resign",
    ApiKey.BROKER_REGISTRATION: (
        "replaces the registration of the broker, whose epoch is stale then"
    ),
    ApiKey.BROKER_HEARTBEAT: (
        "lets a broker be fenced or shut down, if it names the epoch of its registration"
    ),
    ApiKey.UNREGISTER_BROKER: "removes the registration of the broker",
    ApiKey.ALTER_PARTITION: (
        "removes the leader from the ISR, if it has the epochs of the partition"
    ),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (
        "moves replicas to a lost directory, if it has the epoch of the broker"
    ),
    ApiKey.UPDATE_FEATURES: "lowers or raises the level of the cluster",
    ApiKey.ALTER_CONFIGS: (
        "may set max.connections=0, message.max.bytes=0, min.insync.replicas=2 and the like"
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "as ALTER_CONFIGS",
    ApiKey.CONTROLLED_SHUTDOWN: "moves all leaderships away from the broker",
    ApiKey.LEADER_AND_ISR: (
        "sets partition leaders; with a controller epoch above any controller's the broker "
        "ignores all later requests"
    ),
    ApiKey.UPDATE_METADATA: "replaces brokers and partitions, with such a controller epoch",
    ApiKey.STOP_REPLICA: "deletes replicas, with such a controller epoch",
}
"""Requests by which a client with all permissions can legitimately end service, and how.

Clients without permissions send them, too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Address and user of a hostile client.

    `offered`: API key to first and last version; `left_out`: APIs that are not sent.
    """

    name: str
    host: str
    port: int
    user: str | None
    offered: Mapping[int, tuple[int, int]]
    left_out: frozenset[int]
    is_obedient: bool = False
    """Whether the node may legitimately stop serving."""
    connections: int = 2

    async def log_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Authenticate as the user, if there is one."""
        if self.user is None:
            return
        await _asked(reader, writer, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{self.user}\0{USERS[self.user]}".encode()
        answer = await _asked(reader, writer, SaslAuthenticateRequest(auth_bytes=token), 2)
        assert isinstance(answer, SaslAuthenticateResponse) and not answer.error_code, (
            f"{self.user} cannot log in: {answer}"
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A cluster with topics; `names` and `ids` are of those that may be deleted.

    `healthy` is the address of healthy clients.
    """

    healthy: tuple[str, int]
    listeners: list[Listener]
    names: tuple[str, ...]
    ids: list[bytes]
    """The listeners of the current cluster."""
    has_rules: bool


def clusters() -> dict[str, ClusterSpec]:
    """Return all clusters, on free ports."""
    width = len(PLACES) * LISTENERS_MAX
    first = free_port_range(width, controllers=width)
    ports = {name: first + LISTENERS_MAX * place for place, name in enumerate(PLACES)}
    return {
        OPEN: ClusterSpec(brokers=1, port=ports[OPEN]),
        GUARDED: ClusterSpec(
            brokers=1,
            port=ports[GUARDED],
            settings=SECURITY,
            node_settings=_listeners(ports[GUARDED], has_controller=True),
        ),
        ZOOKEEPER: _in_zookeeper(ports[ZOOKEEPER]),
        OBEDIENT: ClusterSpec(brokers=1, port=ports[OBEDIENT]),
        OBEDIENT_ZOOKEEPER: _in_zookeeper(ports[OBEDIENT_ZOOKEEPER]),
    }


def _in_zookeeper(port: int) -> ClusterSpec:
    return ClusterSpec(
        controllers=0,
        zookeeper=True,
        brokers=1,
        port=port,
        settings=ZOOKEEPER_SECURITY,
        node_settings=_listeners(port, has_controller=False),
    )


def _listeners(port: int, *, has_controller: bool) -> dict[str, dict[str, str]]:
    broker = {"listeners": f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{port + 1}"}
    if not has_controller:
        return {"broker-1": broker}
    control, watched = (
        f"127.0.0.1:{port + CONTROLLER_PORT_DISTANCE + distance}" for distance in (0, 1)
    )
    return {
        "broker-1": broker,
        "controller-101": {"listeners": f"CONTROLLER://{control},WATCHED://{watched}"},
    }


def _clients(name: str) -> list[tuple[str, int, str | None]]:
    """Return the node of each client, the offset of its port from that of the broker, and the
    user.
    """
    control = CONTROLLER_PORT_DISTANCE
    match name:
        case "guarded":
            return [
                (node, distance + 1, user)
                for node, distance in (("broker", 0), ("controller", control))
                for user in USERS
            ]
        case "zookeeper":
            return [("broker", 1, user) for user in USERS]
        case "obedient zookeeper":
            return [("broker", 1, "admin")]
    return [("broker", 0, None), ("controller", control, None)]


async def prepared(name: str, spec: ClusterSpec) -> Prepared:
    """Create topics and ACLs, and query the APIs that each listener supports."""
    is_obedient, listeners = name in ARE_OBEDIENT, []
    for node, distance, user in _clients(name):
        port = spec.port + distance
        answer = await asked_once(
            spec.host,
            port,
            ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"),
            3,
        )
        assert isinstance(answer, ApiVersionsResponse), "the response of ApiVersions"
        offered = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        has_all_rights = user in (None, "admin")
        listeners.append(
            Listener(
                name=f"{name} {node}" + (f" as {user}" if user else ""),
                host=spec.host,
                port=port,
                user=user,
                offered=offered,
                left_out=frozenset(map(int, LEFT_OUT))
                if has_all_rights and not is_obedient
                else frozenset(),
                is_obedient=is_obedient,
                connections=CONNECTIONS_WITHOUT_AUTHORIZER if name == OPEN else 2,
            )
        )
    wanted = [
        CreatableTopic(name=topic, num_partitions=1, replication_factor=1) for topic in TOPICS
    ]
    made = await asked_once(
        spec.host, spec.port, CreateTopicsRequest(topics=wanted, timeout_ms=5000), 7
    )
    assert isinstance(made, CreateTopicsResponse), "the response of CreateTopics"
    named = [topic for topic in made.topics if topic.name != HEALTHY_TOPIC]
    has_rules = "authorizer.class.name" in spec.settings
    target = Prepared(
        (spec.host, spec.port),
        listeners,
        tuple(each.name for each in named),
        [each.topic_id for each in named],
        has_rules,
    )
    await give_rights(target)
    return target


CONNECTIONS_WITHOUT_AUTHORIZER: Final = 8
"""For each listener of the cluster without authorizer, so that it gets half of all frames."""


async def give_rights(target: Prepared) -> None:
    """Create carol's ACLs; other clients may have deleted them."""
    if not target.has_rules:
        return
    operations = AclOperation
    rights = [
        *(
            (AclResourceType.TOPIC, "fuzzed", each)
            for each in (
                operations.READ,
                operations.WRITE,
                operations.ALTER_CONFIGS,
                operations.DELETE,
            )
        ),
        (AclResourceType.GROUP, "*", operations.READ),
        (AclResourceType.TRANSACTIONAL_ID, "*", operations.WRITE),
        (AclResourceType.CLUSTER, "kafka-cluster", operations.DESCRIBE),
        (AclResourceType.CLUSTER, "kafka-cluster", operations.IDEMPOTENT_WRITE),
    ]
    creations = [
        AclCreation(
            resource_type=int(kind),
            resource_name=name,
            resource_pattern_type=int(AclPatternType.LITERAL),
            principal="User:carol",
            host="*",
            operation=int(operation),
            permission_type=int(AclPermissionType.ALLOW),
        )
        for kind, name, operation in rights
    ]
    made = await asked_once(*target.healthy, CreateAclsRequest(creations=creations), 3)
    assert isinstance(made, CreateAclsResponse) and not any(
        row.error_code for row in made.results
    ), f"carol's ACLs are rejected: {made}"


async def asked_once(host: str, port: int, body: Message, version: int) -> Message:
    """Send a request over its own connection. Raises OSError, IncompleteReadError."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return await _asked(reader, writer, body, version)
    finally:
        writer.close()


async def _asked(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: Message, version: int
) -> Message:
    message_class: type = type(body)
    key = int(declaration_of(message_class).api_key or 0)
    writer.write(b"".join(request_chunks(key, version, 0, "fuzz", body)))
    async with asyncio.timeout(10):
        return decode_response(
            key, version, await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        )[1]
