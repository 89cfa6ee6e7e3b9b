"""Follows what is configured in ZooKeeper: everything once, then whatever a new znode below /config/changes names.

What cannot be read is said, and what was known before goes on to hold: other brokers must not suffer from one bad text.
Source: kafka.server.ZkConfigManager, DynamicConfigManager.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence

from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.metadata.record_kinds import MetadataRecord
from kraftsim.core.zookeeper_mode.config_entities import entity_changes
from kraftsim.core.zookeeper_mode.znode_reading import Znodes
from kraftsim.events.zookeeper_mode import ZnodeNotUnderstood
from kraftsim.node.zookeeper.client import ZookeeperClient
from kraftsim.node.zookeeper_mode.change_notifications import ChangeNotifications, read
from kraftsim.node.zookeeper_mode.session import ZookeeperSession
from kraftsim.node.zookeeper_mode.znode_reader import ZnodeReader
from kraftsim.world.interface import World
from protocol.malformed import MalformedMessage
from protocol.zookeeper.kafka_znodes import CONFIG, CONFIG_CHANGES, CONFIG_TYPES, parse_config_change

Apply = Callable[[Sequence[MetadataRecord]], Awaitable[None]]


class ConfigWatch:
    """`image()` is what the broker knows, `apply` is awaited with the records by which it changes."""

    def __init__(self, world: World, session: ZookeeperSession, image: Callable[[], MetadataImage], apply: Apply) -> None:
        self._world = world
        self._session = session
        self._image = image
        self._apply = apply
        self._changes = ChangeNotifications(session, CONFIG_CHANGES, self._follow_one)

    async def read_all(self) -> None:
        """Take over everything that is configured, and begin to watch. Raises ZookeeperRefused."""
        await self._changes.begin()
        znodes: dict[str, bytes | None] = {}
        for kind in CONFIG_TYPES:
            for path, (data, _) in (await tree(self._session, f"{CONFIG}/{kind}")).items():
                znodes[path.removeprefix(f"{CONFIG}/")] = data
        for entity in _entities(znodes):
            await self._take(entity, znodes[entity])

    async def run(self) -> None:
        """Follow changes for ever."""
        await self._changes.run()

    async def _follow_one(self, path: str, data: bytes) -> None:
        try:
            entity = parse_config_change(data)
        except MalformedMessage as malformed:
            self._world.note(ZnodeNotUnderstood(path=path, reason=malformed.reason))
            return
        await self._take(entity, await read(self._session, f"{CONFIG}/{entity}"))

    async def _take(self, entity: str, data: bytes | None) -> None:
        try:
            records = entity_changes(entity, data, self._image())
        except MalformedMessage as malformed:
            self._world.note(ZnodeNotUnderstood(path=f"{CONFIG}/{entity}", reason=malformed.reason))
            return
        if records:
            await self._apply(records)


async def tree(session: ZookeeperSession, root: str) -> Znodes:
    """Return a znode and all that is below it. Raises ZookeeperRefused."""

    async def whole(client: ZookeeperClient) -> Znodes:
        return await ZnodeReader(client).tree(root)

    return await session.until_connected(whole)


def _entities(znodes: dict[str, bytes | None]) -> Iterator[str]:
    """Yield those of the znodes that are entities: `users/alice` and `users/alice/clients/c1`, not `users` or `users/alice/clients`."""
    return (path for path in sorted(znodes) if path.count("/") % 2 == 1)
