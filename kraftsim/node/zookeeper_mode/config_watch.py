"""Follows what is configured in ZooKeeper: everything once, then whatever a new znode below /config/changes names.

What cannot be read is said, and what was known before goes on to hold: other brokers must not suffer from one bad text.
Source: kafka.server.ZkConfigManager, kafka.common.ZkNodeChangeNotificationListener, DynamicConfigManager.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.metadata.record_kinds import MetadataRecord
from kraftsim.core.zookeeper_mode.config_entities import entity_changes
from kraftsim.core.zookeeper_mode.znode_reading import Znodes
from kraftsim.events.zookeeper_mode import ZnodeNotUnderstood
from kraftsim.node.zookeeper.client import ZookeeperRefused
from kraftsim.node.zookeeper_mode.session import ZookeeperSession
from kraftsim.node.zookeeper_mode.znode_reader import ZnodeReader
from kraftsim.world.interface import World
from protocol.malformed import MalformedMessage
from protocol.zookeeper.kafka_znodes import CONFIG, CONFIG_CHANGES, CONFIG_TYPES, parse_config_change
from protocol.zookeeper.op_codes import EventType, ZookeeperError

NOTHING_SEEN = -1
Apply = Callable[[Sequence[MetadataRecord]], Awaitable[None]]


class ConfigWatch:
    """`image()` is what the broker knows, `apply` is awaited with the records by which it changes."""

    def __init__(self, world: World, session: ZookeeperSession, image: Callable[[], MetadataImage], apply: Apply) -> None:
        self._world = world
        self._session = session
        self._image = image
        self._apply = apply
        self._last_change = NOTHING_SEEN
        self._has_changed = asyncio.Event()
        session.listen(self._on_event)

    async def read_all(self) -> None:
        """Take over everything that is configured, and begin to watch. Also what was removed while nobody watched is noticed."""
        self._last_change = max((_number(name) for name in await self._changes()), default=NOTHING_SEEN)
        znodes: dict[str, bytes | None] = {}
        for kind in CONFIG_TYPES:
            found: Znodes = await self._session.until_connected(lambda client, kind=kind: ZnodeReader(client).tree(f"{CONFIG}/{kind}"))  # type: ignore[misc]
            znodes.update({path.removeprefix(f"{CONFIG}/"): data for path, (data, _) in found.items()})
        for entity in _entities(znodes):
            await self._take(entity, znodes[entity])

    async def run(self) -> None:
        """Follow changes for ever."""
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            try:
                await self._follow()
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.SESSION_EXPIRED:
                    raise  # the next session reads everything again

    async def _follow(self) -> None:
        for name in await self._changes():
            if _number(name) > self._last_change:
                self._last_change = _number(name)
                await self._follow_one(f"{CONFIG_CHANGES}/{name}")

    async def _follow_one(self, path: str) -> None:
        data = await self._read(path)
        if data is None:
            return  # it was too old, and its entity was read after it
        try:
            entity = parse_config_change(data)
        except MalformedMessage as malformed:
            self._world.note(ZnodeNotUnderstood(path=path, reason=malformed.reason))
            return
        await self._take(entity, await self._read(f"{CONFIG}/{entity}"))

    async def _take(self, entity: str, data: bytes | None) -> None:
        try:
            records = entity_changes(entity, data, self._image())
        except MalformedMessage as malformed:
            self._world.note(ZnodeNotUnderstood(path=f"{CONFIG}/{entity}", reason=malformed.reason))
            return
        if records:
            await self._apply(records)

    async def _changes(self) -> list[str]:
        """Return the names of the changes in their order, and watch for the next one."""
        names, _ = await self._session.until_connected(lambda client: client.children(CONFIG_CHANGES, watch=True))
        return sorted(names, key=_number)

    async def _read(self, path: str) -> bytes | None:
        try:
            data, _ = await self._session.until_connected(lambda client: client.get(path))
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NO_NODE:
                raise
            return None
        return data

    def _on_event(self, event_type: EventType, path: str) -> None:
        if path == CONFIG_CHANGES:
            self._has_changed.set()


def _number(name: str) -> int:
    """Return the number of a sequential znode."""
    digits = name.rpartition("_")[2]
    return int(digits) if digits.isdecimal() else NOTHING_SEEN


def _entities(znodes: dict[str, bytes | None]) -> Iterator[str]:
    """Yield those of the znodes that are entities: `users/alice` and `users/alice/clients/c1`, not `users` or `users/alice/clients`."""
    return (path for path in sorted(znodes) if path.count("/") % 2 == 1)
