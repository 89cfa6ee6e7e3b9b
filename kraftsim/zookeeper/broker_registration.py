"""Broker registration in ZooKeeper: the persistent top-level znodes, the cluster id, and the
broker's ephemeral znode.

The czxid of that znode is the broker epoch. The znode is created and set in one multi, as Kafka
does since 2.2.
Source: kafka.zk.KafkaZkClient.{createTopLevelPaths, registerBroker, createOrGetClusterId,
CheckedEphemeral}, KAFKA-7165.
"""

import asyncio
from collections.abc import Mapping

from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.identity import CLUSTER_ID_KEY, random_uuid
from kraftsim.world.interface import World
from kraftsim.zookeeper.client import OPEN_TO_ALL, ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.session import ZookeeperSession
from protocol.malformed import MalformedMessage
from protocol.uuids import uuid_text
from protocol.zookeeper.kafka_znodes import (
    CLUSTER_ID,
    PERSISTENT_PATHS,
    BrokerZnode,
    broker_path,
    build_cluster_id,
    parse_cluster_id,
)
from protocol.zookeeper.op_codes import ANY_VERSION, CreateMode, OpCode, ZookeeperError
from protocol.zookeeper.znodes import CreateRequest, SetDataRequest

PLAINTEXT = "PLAINTEXT"
NO_PORT = -1
RETRY_MS = 500


class BrokerIdTaken(OSError):
    """Another session owns the znode of this broker id: another broker, or an earlier incarnation
    whose session has not expired.
    """


class InconsistentClusterId(ConfigError):
    """ZooKeeper belongs to another cluster than this broker."""


async def create_persistent_paths(session: ZookeeperSession) -> None:
    """Create the persistent parent znodes, ancestors included.

    Existing znodes are left unchanged. Raises ZookeeperRefused.
    """
    for path in PERSISTENT_PATHS:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            await create_if_absent(session, "/".join(parts[:end]), None)


async def create_if_absent(session: ZookeeperSession, path: str, data: bytes | None) -> bool:
    """Create a znode; return False if it exists. Raises ZookeeperRefused."""
    try:
        await session.until_connected(lambda client: client.create(path, data))
    except ZookeeperRefused as refused:
        if refused.error != ZookeeperError.NODE_EXISTS:
            raise
        return False
    return True


async def create_chroot(session: ZookeeperSession, config: NodeConfig) -> None:
    """Create the chroot znode and its ancestors. Raises ZookeeperRefused."""
    if config.zookeeper.chroot:
        await create_if_absent(session, "/", b"")


async def cluster_id_of(session: ZookeeperSession, world: World, config: NodeConfig) -> str:
    """Return the cluster id; the first broker generates it.

    Raises InconsistentClusterId, ZookeeperRefused, ConfigError.
    """
    wanted = config.given.get(CLUSTER_ID_KEY)
    if wanted is None and not await _exists(session, CLUSTER_ID):
        wanted = uuid_text(random_uuid(world, "cluster id"))
    if wanted is not None:
        await create_if_absent(session, "/cluster", None)
        await create_if_absent(session, CLUSTER_ID, build_cluster_id(wanted))
    data, _ = await session.until_connected(lambda client: client.get(CLUSTER_ID))
    try:
        found = parse_cluster_id(data or b"")
    except MalformedMessage as malformed:
        raise ConfigError(
            f"zookeeper.connect: {CLUSTER_ID} cannot be read: {malformed.reason}"
        ) from malformed
    if CLUSTER_ID_KEY in config.given and found != wanted:
        raise InconsistentClusterId(
            f"{CLUSTER_ID_KEY}: ZooKeeper belongs to cluster {found}, not to {wanted}"
        )
    return found


async def _exists(session: ZookeeperSession, path: str) -> bool:
    return await session.until_connected(lambda client: client.exists(path)) is not None


def broker_znode(
    config: NodeConfig, bound: Mapping[str, ListenerEndpoint], wall_ms: int, version: int
) -> BrokerZnode:
    """Return the content of the broker's znode; an advertised port of 0 is replaced by the bound
    port.
    """
    endpoints = [
        (each.listener, each.host, each.port or bound[each.listener].port)
        for each in config.advertised_listeners
    ]
    protocols = config.listener_security_protocol_map
    plain = [(host, port) for listener, host, port in endpoints if protocols[listener] == PLAINTEXT]
    host, port = plain[0] if plain else (None, NO_PORT)
    return BrokerZnode(
        host=host,
        port=port,
        endpoints=[
            f"{listener}://{f'[{host}]' if ':' in host else host}:{port}"
            for listener, host, port in endpoints
        ],
        security_protocols={listener: protocols[listener] for listener, _, _ in endpoints},
        timestamp_ms=wall_ms,
        rack=config.broker_rack,
        version=version,
    )


async def register_in_time(
    session: ZookeeperSession, broker_id: int, znode: BrokerZnode, wait_ms: int
) -> int:
    """Create the broker's znode and return the broker epoch. Wait up to `wait_ms` for another
    session that owns the znode to expire. Raises as `register` does.
    """
    deadline = asyncio.get_running_loop().time() + wait_ms / 1000
    while True:
        try:
            return await register(session, broker_id, znode)
        except BrokerIdTaken:
            if asyncio.get_running_loop().time() >= deadline:
                raise
        await asyncio.sleep(RETRY_MS / 1000)


async def register(session: ZookeeperSession, broker_id: int, znode: BrokerZnode) -> int:
    """Create the broker's znode and return the broker epoch.

    Raises BrokerIdTaken, ZookeeperRefused.
    """
    path, data = broker_path(broker_id), znode.build()
    while True:
        try:
            await session.until_connected(lambda client: _create_and_set(client, path, data))
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NODE_EXISTS:
                raise
        stat = await session.until_connected(lambda client: client.exists(path))
        if stat is None:
            continue  # the znode of another session was deleted meanwhile
        if stat.ephemeral_owner == session.client.session:
            return stat.czxid
        if stat.ephemeral_owner != session.former_session:
            raise BrokerIdTaken(
                f"broker.id: {path} exists already and its owner {stat.ephemeral_owner:#x} does "
                f"not match this session, {session.client.session:#x}; another broker has this "
                "id, or the session of an earlier incarnation has not expired yet"
            )
        await session.until_connected(lambda client: _delete(client, path))


async def _create_and_set(client: ZookeeperClient, path: str, data: bytes) -> None:
    await client.multi(
        [
            (
                OpCode.CREATE,
                CreateRequest(path=path, data=data, acl=[OPEN_TO_ALL], flags=CreateMode.EPHEMERAL),
            ),
            (OpCode.SET_DATA, SetDataRequest(path=path, data=data, version=ANY_VERSION)),
        ]
    )


async def _delete(client: ZookeeperClient, path: str) -> None:
    try:
        await client.delete(path)
    except ZookeeperRefused as refused:
        if refused.error != ZookeeperError.NO_NODE:
            raise
