"""Reads cluster metadata from ZooKeeper, all of it or a part, with pipelined requests.

Source: kafka.zk.KafkaZkClient (retryRequestsUntilConnected, pipelined by
zookeeper.max.in.flight.requests).
"""

import asyncio
from collections.abc import Container, Iterable, Sequence
from typing import Final

from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.rules_znodes import Znodes
from kraftsim.zookeeper.znode_writer import IN_FLIGHT_MAX
from protocol.zookeeper.kafka_access_znodes import ACLS, DELEGATION_TOKENS, EXTENDED_ACLS
from protocol.zookeeper.kafka_znodes import (
    CONFIG,
    CONFIG_TYPES,
    DELETE_TOPICS,
    PRODUCER_ID_BLOCK,
    TOPICS,
)
from protocol.zookeeper.op_codes import ZookeeperError
from protocol.zookeeper.znodes import Stat

ROOTS: Final = (
    TOPICS,
    *(f"{CONFIG}/{each}" for each in CONFIG_TYPES),
    DELETE_TOPICS,
    ACLS,
    EXTENDED_ACLS,
    DELEGATION_TOKENS,
)
"""The subtrees that a controller loads and a migration copies."""


class ZnodeReader:
    """Reads over one session.

    All methods raise ZookeeperRefused; znodes that do not exist are omitted.
    """

    def __init__(self, client: ZookeeperClient) -> None:
        self._client = client
        self._places = asyncio.Semaphore(IN_FLIGHT_MAX)

    async def everything(self) -> dict[str, tuple[bytes | None, Stat]]:
        """Return every metadata znode, including topics queued for deletion."""
        found: dict[str, tuple[bytes | None, Stat]] = {}
        for root in ROOTS:
            found.update(await self.tree(root))
        found.update(await self.some([PRODUCER_ID_BLOCK]))
        return found

    async def metadata(self) -> Znodes:
        """Return all metadata except topics queued for deletion."""
        found = await self.everything()
        pending = dict.fromkeys(
            name for path in found if (name := path.removeprefix(f"{DELETE_TOPICS}/")) != path
        )
        return {path: znode for path, znode in found.items() if not _belongs_to(path, pending)}

    async def tree(self, root: str) -> dict[str, tuple[bytes | None, Stat]]:
        """Return a znode and all its descendants, level by level."""
        found: dict[str, tuple[bytes | None, Stat]] = {}
        level: Sequence[str] = [root]
        while level:
            some = await self.some(level)
            found.update(some)
            parents = [path for path in some if some[path][1].num_children]
            level = [
                f"{path}/{name}"
                for path, names in await self.names_below(parents)
                for name in names
            ]
        return found

    async def some(self, paths: Iterable[str]) -> dict[str, tuple[bytes | None, Stat]]:
        """Return the existing ones of some znodes, in this order."""
        wanted = list(paths)
        answers = await asyncio.gather(*map(self._get, wanted))
        return {
            path: answer for path, answer in zip(wanted, answers, strict=True) if answer is not None
        }

    async def names_below(self, paths: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return the child names of some znodes."""
        return list(zip(paths, await asyncio.gather(*map(self._children, paths)), strict=True))

    async def _get(self, path: str) -> tuple[bytes | None, Stat] | None:
        async with self._places:
            try:
                return await self._client.get(path)
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.NO_NODE:
                    raise
                return None

    async def _children(self, path: str) -> list[str]:
        async with self._places:
            try:
                return (await self._client.children(path))[0]
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.NO_NODE:
                    raise
                return []


async def read_all(client: ZookeeperClient) -> Znodes:
    """Return all metadata except topics queued for deletion. Raises ZookeeperRefused."""
    return await ZnodeReader(client).metadata()


def _belongs_to(path: str, topics: Container[str]) -> bool:
    """Return whether a znode belongs to one of some topics."""
    for root in (TOPICS, f"{CONFIG}/topics"):
        if path.startswith(f"{root}/"):
            return path.removeprefix(f"{root}/").partition("/")[0] in topics
    return False
