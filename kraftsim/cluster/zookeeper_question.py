"""What a story asks of ZooKeeper itself: how far a migration is, and to forget it."""

from collections.abc import Sequence

from kraftsim.node.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.world.interface import World
from protocol.zookeeper.kafka_znodes import CONTROLLER, MIGRATION, MigrationZnode
from protocol.zookeeper.op_codes import ZookeeperError


async def migrated_until(world: World, servers: Sequence[tuple[str, int]]) -> int:
    """Return the offset in /migration; -1 where nothing is copied, or where nobody can tell."""
    client = ZookeeperClient(world, servers)
    client.start()
    try:
        data, _ = await client.get(MIGRATION)
    except ZookeeperRefused:
        return -1
    finally:
        await client.close()
    return MigrationZnode.parse(data or b"").kraft_metadata_offset


async def take_back(world: World, servers: Sequence[tuple[str, int]]) -> None:
    """Delete /controller, so that a broker can be elected, and /migration, so that a later attempt copies anew.   Source: KIP-866, KAFKA-15945."""
    client = ZookeeperClient(world, servers)
    client.start()
    try:
        for path in (CONTROLLER, MIGRATION):
            try:
                await client.delete(path)
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.NO_NODE:
                    raise
    finally:
        await client.close()
