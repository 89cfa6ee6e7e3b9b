"""Follows the sequential notification znodes below a path.

Notifications that exist at the start are skipped.

Source: kafka.common.ZkNodeChangeNotificationListener.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kraftsim.zookeeper.client import ZookeeperRefused
from kraftsim.zookeeper.session import ZookeeperSession
from protocol.zookeeper.op_codes import EventType, ZookeeperError

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
