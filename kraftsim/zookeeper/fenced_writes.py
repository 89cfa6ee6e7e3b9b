"""Atomic writes of a ZooKeeper-mode controller, fenced by the version of /controller_epoch.

After a lost connection it reads back whether the write happened: a znode that has the next version
and the written content was written.
Source: kafka.zk.KafkaZkClient.{retryRequestsUntilConnected, wrapRequestWithControllerEpochCheck}.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from kraftsim.zookeeper.client import SessionState, ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.rules_znode_writes import WriteKind, ZnodeWrite
from kraftsim.zookeeper.znode_writer import (
    ControllerMoved,
    check_request,
    expanded,
    requests_of,
)
from protocol.zookeeper.kafka_znodes import CONTROLLER_EPOCH
from protocol.zookeeper.multi import Asked
from protocol.zookeeper.op_codes import ANY_VERSION, ZookeeperError

RETRY_MS: Final = 100


class FencedWrites:
    """Writes of one controller epoch, over one session.

    `epoch_version` is the version of /controller_epoch.
    """

    def __init__(self, client: ZookeeperClient, epoch_version: int) -> None:
        self._client = client
        self._epoch_version = epoch_version

    async def carry(self, writes: Sequence[ZnodeWrite]) -> None:
        """Do all writes atomically. Raises ControllerMoved, or ZookeeperRefused with the path of a
        znode that is not in the expected state.
        """
        while True:
            resolved = await self._retried_resolution(writes)
            try:
                asked = [request for write in resolved for request in requests_of(write)]
                await self.attempt(asked)
                return
            except ZookeeperRefused as refused:
                self._raise_unless_lost(refused)
            if await self._has_happened(resolved):
                return

    async def attempt(self, asked: Sequence[Asked]) -> None:
        """Do all requests in one attempt.

        Raises ControllerMoved, and ZookeeperRefused: after a lost connection the outcome is
        unknown.
        """
        try:
            await self._client.multi([check_request(CONTROLLER_EPOCH, self._epoch_version), *asked])
        except ZookeeperRefused as refused:
            if refused.path == CONTROLLER_EPOCH and refused.error == ZookeeperError.BAD_VERSION:
                raise ControllerMoved(
                    f"{CONTROLLER_EPOCH} has another version than this controller gave it"
                ) from refused
            raise

    async def _retried_resolution(self, writes: Sequence[ZnodeWrite]) -> list[ZnodeWrite]:
        while True:
            try:
                return await self._resolved(writes)
            except ZookeeperRefused as refused:
                self._raise_unless_lost(refused)
            await asyncio.sleep(RETRY_MS / 1000)

    async def _resolved(self, writes: Sequence[ZnodeWrite]) -> list[ZnodeWrite]:
        """Expand writes to sets, creations and deletions, depending on which znodes exist."""
        asked = [write.path for write in writes if write.kind in (WriteKind.PUT, WriteKind.DROP)]
        there = dict.fromkeys(await self._existing(asked))
        found: list[ZnodeWrite] = []
        for write in writes:
            is_registered = write.path in there
            match write.kind:
                case WriteKind.PUT if write.data is None and is_registered:
                    continue
                case WriteKind.PUT:
                    kind = WriteKind.SET if is_registered else WriteKind.CREATE
                    there[write.path] = None
                    found.append(ZnodeWrite(kind=kind, path=write.path, data=write.data))
                case WriteKind.DROP:
                    found += (
                        [ZnodeWrite(kind=WriteKind.DELETE, path=write.path)]
                        if is_registered
                        else []
                    )
                case _:
                    found += await expanded(self._client, write)
        return found

    async def _existing(self, paths: Iterable[str]) -> list[str]:
        wanted = list(paths)
        stats = await asyncio.gather(*map(self._client.exists, wanted))
        return [path for path, stat in zip(wanted, stats, strict=True) if stat is not None]

    async def _has_happened(self, writes: Sequence[ZnodeWrite]) -> bool:
        """Return whether writes with a lost connection happened: any one of them that can be
        verified stands for the whole multi.
        """
        probe = next(
            (
                write
                for write in writes
                if write.kind is WriteKind.CREATE or write.version != ANY_VERSION
            ),
            None,
        )
        if probe is None:
            return False  # they are idempotent
        while True:
            await asyncio.sleep(RETRY_MS / 1000)
            try:
                data, stat = await self._client.get(probe.path)
                return data == probe.data and stat.version == (
                    0 if probe.kind is WriteKind.CREATE else probe.version + 1
                )
            except ZookeeperRefused as refused:
                if refused.error == ZookeeperError.NO_NODE:
                    return False
                self._raise_unless_lost(refused)

    def _raise_unless_lost(self, refused: ZookeeperRefused) -> None:
        if refused.error != ZookeeperError.CONNECTION_LOSS or self._client.state in (
            SessionState.EXPIRED,
            SessionState.CLOSED,
        ):
            raise refused
