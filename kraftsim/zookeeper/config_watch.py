"""Follows configs in ZooKeeper: loads all once, then each entity that a new znode below
/config/changes names.

No notification announces the configs of a new topic: the broker reads them when it creates a log of
the topic, and when a client describes them. An unreadable config is reported in an event, and the
previous config stays in effect, so that one malformed znode does not affect other brokers.
Source: kafka.server.{ZkConfigManager, DynamicConfigManager, ConfigHelper}, kafka.zk.AdminZkClient,
kafka.server.metadata.ZkConfigRepository, kafka.cluster.Partition.createLog; checked against 2.7.2
and 3.9.1.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_registries import MetadataRecord
from kraftsim.world.interface import World
from kraftsim.zookeeper.change_notifications import ChangeNotifications, read
from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.events import ZnodeNotUnderstood
from kraftsim.zookeeper.rules_znodes import Znodes, entity_changes
from kraftsim.zookeeper.session import ZookeeperSession
from kraftsim.zookeeper.znode_reader import ZnodeReader
from protocol.malformed import MalformedMessage
from protocol.zookeeper.kafka_znodes import (
    CONFIG,
    CONFIG_CHANGES,
    CONFIG_TYPES,
    parse_config_change,
)
from protocol.zookeeper.op_codes import ZookeeperError

Load = Callable[[], None]
Apply = Callable[[Sequence[MetadataRecord]], Awaitable[None]]


class ConfigWatch:
    """`image()` returns the broker's metadata image; `apply` is awaited with the records that
    change it.
    """

    def __init__(
        self,
        world: World,
        session: ZookeeperSession,
        image: Callable[[], MetadataImage],
        apply: Apply,
    ) -> None:
        self._world = world
        self._session = session
        self._image = image
        self._apply = apply
        self._changes = ChangeNotifications(session, CONFIG_CHANGES, self._follow_one)
        self._turn = asyncio.Lock()
        """Held from the read of a znode until its content is in the image, so that older content
        never replaces newer content.
        """

    async def read_all(self) -> None:
        """Load all configs and set watches. Raises ZookeeperRefused."""
        await self._changes.begin()
        async with self._turn:
            znodes: dict[str, bytes | None] = {}
            for kind in CONFIG_TYPES:
                for path, (data, _) in (await tree(self._session, f"{CONFIG}/{kind}")).items():
                    znodes[path.removeprefix(f"{CONFIG}/")] = data
            for entity in _entities(znodes):
                await self._take(entity, znodes[entity])

    async def run(self) -> None:
        """Follow changes until cancelled."""
        await self._changes.run()

    async def _follow_one(self, path: str, data: bytes) -> None:
        try:
            entity = parse_config_change(data)
        except MalformedMessage as malformed:
            self._world.emit(ZnodeNotUnderstood(path=path, reason=malformed.reason))
            return
        await self._reread(entity)

    async def _reread(self, entity: str) -> None:
        async with self._turn:
            await self._take(entity, await read(self._session, f"{CONFIG}/{entity}"))

    async def reread_topics(self, topics: Collection[str]) -> None:
        """Load the current configs of topics from ZooKeeper. Raises ZookeeperRefused."""
        for topic in topics:
            await self._reread(f"topics/{topic}")

    @asynccontextmanager
    async def configs_of_new_logs(self, topics: Collection[str]) -> AsyncIterator[Load]:
        """Read the configs of topics and yield a function that loads them into the image without
        publishing.

        Without a session nothing is loaded: the next session starts by reading all configs.
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
        """Return the records that apply a config znode to the image; none if the content is
        malformed.
        """
        try:
            return entity_changes(entity, data, self._image())
        except MalformedMessage as malformed:
            self._world.emit(ZnodeNotUnderstood(path=f"{CONFIG}/{entity}", reason=malformed.reason))
            return ()


async def tree(session: ZookeeperSession, root: str) -> Znodes:
    """Return a znode and all its descendants. Raises ZookeeperRefused."""

    async def whole(client: ZookeeperClient) -> Znodes:
        return await ZnodeReader(client).tree(root)

    return await session.until_connected(whole)


def _entities(znodes: dict[str, bytes | None]) -> Iterator[str]:
    """Yield the znodes that are entities: `users/alice` and `users/alice/clients/c1`, not `users`
    or `users/alice/clients`.
    """
    return (path for path in sorted(znodes) if path.count("/") % 2 == 1)
