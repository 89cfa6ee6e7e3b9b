"""Follows what is configured in ZooKeeper: everything once, then whatever a new znode below /config/changes names.

A new topic's configs are announced by no such znode: the broker reads them when it creates a log of
the topic, and when a client asks for them. What cannot be read is said, and what was known before
goes on to hold: other brokers must not suffer from one bad text.
Source: kafka.server.{ZkConfigManager, DynamicConfigManager, ConfigHelper}, kafka.zk.AdminZkClient,
kafka.server.metadata.ZkConfigRepository, kafka.cluster.Partition.createLog; asked of 2.7.2 and 3.9.1.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager

from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.metadata.record_kinds import MetadataRecord
from kraftsim.core.zookeeper_mode.config_entities import entity_changes
from kraftsim.core.zookeeper_mode.znode_reading import Znodes
from kraftsim.events.zookeeper_mode import ZnodeNotUnderstood
from kraftsim.node.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.node.zookeeper_mode.change_notifications import ChangeNotifications, read
from kraftsim.node.zookeeper_mode.session import ZookeeperSession
from kraftsim.node.zookeeper_mode.znode_reader import ZnodeReader
from kraftsim.world.interface import World
from protocol.malformed import MalformedMessage
from protocol.zookeeper.kafka_znodes import CONFIG, CONFIG_CHANGES, CONFIG_TYPES, parse_config_change
from protocol.zookeeper.op_codes import ZookeeperError

Load = Callable[[], None]
Apply = Callable[[Sequence[MetadataRecord]], Awaitable[None]]


class ConfigWatch:
    """`image()` is what the broker knows, `apply` is awaited with the records by which it changes."""

    def __init__(self, world: World, session: ZookeeperSession, image: Callable[[], MetadataImage], apply: Apply) -> None:
        self._world = world
        self._session = session
        self._image = image
        self._apply = apply
        self._changes = ChangeNotifications(session, CONFIG_CHANGES, self._follow_one)
        self._turn = asyncio.Lock()
        """Held from the read of a znode until its text is in the image: an older text never replaces a
        newer one."""

    async def read_all(self) -> None:
        """Take over everything that is configured, and begin to watch. Raises ZookeeperRefused."""
        await self._changes.begin()
        async with self._turn:
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
        await self._reread(entity)

    async def _reread(self, entity: str) -> None:
        async with self._turn:
            await self._take(entity, await read(self._session, f"{CONFIG}/{entity}"))

    async def reread_topics(self, topics: Collection[str]) -> None:
        """Take over the configs of topics as ZooKeeper has them now. Raises ZookeeperRefused."""
        for topic in topics:
            await self._reread(f"topics/{topic}")

    @asynccontextmanager
    async def configs_of_new_logs(self, topics: Collection[str]) -> AsyncIterator[Load]:
        """Read the configs of topics and yield what loads them into the image, unpublished.

        Without a session nothing is loaded: the next one begins with all configs.
        Raises ZookeeperRefused.
        """
        async with self._turn:
            texts = {}
            for topic in topics:
                try:
                    texts[topic] = await read(self._session, f"{CONFIG}/topics/{topic}")
                except ZookeeperRefused as refused:
                    if refused.error != ZookeeperError.SESSION_EXPIRED:
                        raise

            def load() -> None:
                for topic, text in texts.items():
                    for record in self._changes_of(f"topics/{topic}", text):
                        self._image().load(record)

            yield load

    async def _take(self, entity: str, data: bytes | None) -> None:
        records = self._changes_of(entity, data)
        if records:
            await self._apply(records)

    def _changes_of(self, entity: str, data: bytes | None) -> Sequence[MetadataRecord]:
        """Return how the image comes to say what a text says; nothing of a text that is none."""
        try:
            return entity_changes(entity, data, self._image())
        except MalformedMessage as malformed:
            self._world.note(ZnodeNotUnderstood(path=f"{CONFIG}/{entity}", reason=malformed.reason))
            return ()


async def tree(session: ZookeeperSession, root: str) -> Znodes:
    """Return a znode and all that is below it. Raises ZookeeperRefused."""

    async def whole(client: ZookeeperClient) -> Znodes:
        return await ZnodeReader(client).tree(root)

    return await session.until_connected(whole)


def _entities(znodes: dict[str, bytes | None]) -> Iterator[str]:
    """Yield those of the znodes that are entities: `users/alice` and `users/alice/clients/c1`, not `users` or `users/alice/clients`."""
    return (path for path in sorted(znodes) if path.count("/") % 2 == 1)
