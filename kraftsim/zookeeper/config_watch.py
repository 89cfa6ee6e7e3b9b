"""Follows what ZooKeeper stores for brokers: configs, ACLs and finalized features are loaded once,
then each change that a notification znode names.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager

from kraftsim.metadata.metadata_source import ClusterFeatures
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_registries import MetadataRecord
from kraftsim.server.api_offer import NO_FEATURES_EPOCH, FinalizedFeatures
from kraftsim.world.interface import World
from kraftsim.zookeeper.broker_registration import create_if_absent
from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.events import ZnodeNotUnderstood
from kraftsim.zookeeper.rules_znodes import (
    Resource,
    Znodes,
    access_changes,
    entity_changes,
    resource_of_path,
)
from kraftsim.zookeeper.session import ZookeeperSession
from kraftsim.zookeeper.znode_writer import ZnodeReader
from protocol.acls import AclPatternType
from protocol.malformed import MalformedMessage
from protocol.zookeeper.kafka_access_znodes import (
    ACL_CHANGES,
    ACLS,
    EXTENDED_ACL_CHANGES,
    EXTENDED_ACLS,
    RESOURCE_TYPES,
    acl_path,
    acl_root,
    parse_acl_change,
    pascal_case,
)
from protocol.zookeeper.kafka_znodes import (
    CONFIG,
    CONFIG_CHANGES,
    CONFIG_TYPES,
    FEATURE,
    FeatureZnode,
    parse_config_change,
)
from protocol.zookeeper.op_codes import EventType, ZookeeperError

# --------------------------------------------------------------------------------------------------
# Follows the sequential notification znodes below a path
#
# Notifications that exist at the start are skipped.
#
# Source: kafka.common.ZkNodeChangeNotificationListener.

NOTHING_SEEN = -1


class ChangeNotifications:
    """`handle(path, data)` is awaited for each new notification, in sequence order."""

    def __init__(
        self, session: ZookeeperSession, path: str, handle: Callable[[str, bytes], Awaitable[None]]
    ) -> None:
        self._session = session
        self._path = path
        self._handle = handle
        self._last = NOTHING_SEEN
        self._has_changed = asyncio.Event()
        session.listen(self._on_event)

    async def begin(self) -> None:
        """Skip existing notifications, and set a watch. Raises ZookeeperRefused."""
        self._last = max((number_of(name) for name in await self._names()), default=NOTHING_SEEN)

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            try:
                await self._follow()
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.SESSION_EXPIRED:
                    raise  # session renewal restarts this

    async def _follow(self) -> None:
        for name in await self._names():
            if number_of(name) > self._last:
                self._last = number_of(name)
                data = await read(self._session, f"{self._path}/{name}")
                if data is not None:  # otherwise it expired, and its entity was read afterwards
                    await self._handle(f"{self._path}/{name}", data)

    async def _names(self) -> list[str]:
        """Return the notification names in order, and watch for the next one."""
        names, _ = await self._session.until_connected(
            lambda client: client.children(self._path, watch=True)
        )
        return sorted(names, key=number_of)

    def _on_event(self, event_type: EventType, path: str) -> None:
        if path == self._path:
            self._has_changed.set()


async def read(session: ZookeeperSession, path: str) -> bytes | None:
    """Return the data of a znode, or None if there is no such znode. Raises ZookeeperRefused."""
    try:
        data, _ = await session.until_connected(lambda client: client.get(path))
    except ZookeeperRefused as refused:
        if refused.error != ZookeeperError.NO_NODE:
            raise
        return None
    return data


def number_of(name: str) -> int:
    """Return the sequence number of a sequential znode."""
    digits = name.rpartition("_")[2]
    return int(digits) if digits.isdecimal() else NOTHING_SEEN


# --------------------------------------------------------------------------------------------------
# Follows configs in ZooKeeper: loads all once, then each entity that a new znode below
# /config/changes names
#
# No notification announces the configs of a new topic: the broker reads them when it creates a log
# of the topic, and when a client describes them. An unreadable config is reported in an event, and
# the previous config stays in effect, so that one malformed znode does not affect other brokers.
# Source: kafka.server.{ZkConfigManager, DynamicConfigManager, ConfigHelper},
# kafka.zk.AdminZkClient, kafka.server.metadata.ZkConfigRepository,
# kafka.cluster.Partition.createLog; checked against 2.7.2 and 3.9.1.

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


# --------------------------------------------------------------------------------------------------
# Loads ACLs from ZooKeeper and follows their changes, for a broker with a ZooKeeper-based
# authorizer
#
# Source: kafka.security.authorizer.AclAuthorizer.

PATTERNS = (AclPatternType.LITERAL, AclPatternType.PREFIXED)


class AccessWatch:
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
        self._changes = [
            ChangeNotifications(session, path, self._follow_one)
            for path in (ACL_CHANGES, EXTENDED_ACL_CHANGES)
        ]

    async def read_all(self) -> None:
        """Create the parent znodes of ACLs, load all ACLs and set watches.

        Raises ZookeeperRefused.
        """
        for path in (
            ACLS,
            EXTENDED_ACLS,
            acl_root(AclPatternType.PREFIXED),
            ACL_CHANGES,
            EXTENDED_ACL_CHANGES,
        ):
            await create_if_absent(self._session, path, None)
        for pattern in PATTERNS:
            for each in RESOURCE_TYPES:
                await create_if_absent(
                    self._session, f"{acl_root(pattern)}/{pascal_case(each.name)}", None
                )
        for changes in self._changes:
            await changes.begin()
        for root in (ACLS, EXTENDED_ACLS):
            for path, (data, _) in (await tree(self._session, root)).items():
                resource = resource_of_path(path)
                if resource is not None:
                    await self._take(resource, data)

    async def run(self) -> None:
        """Follow changes until cancelled."""
        await asyncio.gather(*(changes.run() for changes in self._changes))

    async def _follow_one(self, path: str, data: bytes) -> None:
        try:
            resource = parse_acl_change(data)
        except MalformedMessage as malformed:
            self._world.emit(ZnodeNotUnderstood(path=path, reason=malformed.reason))
            return
        await self._take(resource, await read(self._session, acl_path(*resource)))

    async def _take(self, resource: Resource, data: bytes | None) -> None:
        try:
            records = access_changes(resource, data, self._image())
        except MalformedMessage as malformed:
            self._world.emit(ZnodeNotUnderstood(path=acl_path(*resource), reason=malformed.reason))
            return
        if records:
            await self._apply(records)


# --------------------------------------------------------------------------------------------------
# Finalized features from /feature: clients receive them with the version of the znode as their
# epoch
#
# Source: kafka.server.FinalizedFeatureChangeListener (2.7), KIP-584.

NO_QUORUM = 0


class ZookeeperFeatures(ClusterFeatures):
    """The latest content of /feature; empty until the znode is written."""

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        super().__init__(image, lambda: NO_QUORUM)
        self.read = FinalizedFeatures({}, NO_FEATURES_EPOCH)

    def level(self, name: str) -> int:
        """Return the finalized level of a feature; 0 if it has none."""
        return self.read.levels.get(name, 0)

    def finalized(self) -> FinalizedFeatures:
        """Return all levels, and the version of the znode."""
        return self.read


class FeatureWatch:
    """Keeps the features up to date."""

    def __init__(self, world: World, session: ZookeeperSession, features: ClusterFeatures) -> None:
        assert isinstance(features, ZookeeperFeatures), "these are kept up to date"
        self._world = world
        self._session = session
        self._features = features
        self._has_changed = asyncio.Event()
        session.listen(self._on_event)

    async def read(self) -> None:
        """Read the znode and watch it, or watch for its creation. Raises ZookeeperRefused."""
        while True:
            try:
                data, stat = await self._session.until_connected(
                    lambda client: client.get(FEATURE, watch=True)
                )
                break
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.NO_NODE:
                    raise
            if (
                await self._session.until_connected(
                    lambda client: client.exists(FEATURE, watch=True)
                )
                is None
            ):
                self._features.read = FinalizedFeatures({}, NO_FEATURES_EPOCH)
                return
        try:
            self._features.read = FinalizedFeatures(
                FeatureZnode.parse(data or b"").levels, stat.version
            )
        except MalformedMessage as malformed:
            self._world.emit(ZnodeNotUnderstood(path=FEATURE, reason=malformed.reason))

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            try:
                await self.read()
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.SESSION_EXPIRED:
                    raise  # the next session reads it again

    def _on_event(self, event_type: EventType, path: str) -> None:
        if path == FEATURE:
            self._has_changed.set()
