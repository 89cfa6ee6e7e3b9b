"""Does what a controller of ZooKeeper's time writes, all together or not at all, and only as long as nobody has become controller after it.

If the connection is lost meanwhile it is looked at afterwards whether it happened: a znode that has the next version and the text that was written
was written.   Source: kafka.zk.KafkaZkClient.{retryRequestsUntilConnected, wrapRequestWithControllerEpochCheck}.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from kraftsim.core.zookeeper_mode.znode_writing import WriteKind, ZnodeWrite
from kraftsim.node.zookeeper.client import SessionState, ZookeeperClient, ZookeeperRefused
from kraftsim.node.zookeeper_mode.znode_writer import ControllerMoved, check_request, expanded, requests_of
from protocol.zookeeper.kafka_znodes import CONTROLLER_EPOCH
from protocol.zookeeper.multi import Asked
from protocol.zookeeper.op_codes import ANY_VERSION, ZookeeperError

RETRY_MS: Final = 100


class FencedWrites:
    """Writes of one reign, by one session. `epoch_version` is the version of /controller_epoch."""

    def __init__(self, client: ZookeeperClient, epoch_version: int) -> None:
        self._client = client
        self._epoch_version = epoch_version

    async def carry(self, writes: Sequence[ZnodeWrite]) -> None:
        """Do all of it. Raises ControllerMoved, or ZookeeperRefused with the path of a znode that is not as it was believed to be."""
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
        """Do all of it once. Raises ControllerMoved, and ZookeeperRefused: after a lost connection nobody knows whether it was done."""
        try:
            await self._client.multi([check_request(CONTROLLER_EPOCH, self._epoch_version), *asked])
        except ZookeeperRefused as refused:
            if refused.path == CONTROLLER_EPOCH and refused.error == ZookeeperError.BAD_VERSION:
                raise ControllerMoved(f"{CONTROLLER_EPOCH} has another version than this controller gave it") from refused
            raise

    async def _retried_resolution(self, writes: Sequence[ZnodeWrite]) -> list[ZnodeWrite]:
        while True:
            try:
                return await self._resolved(writes)
            except ZookeeperRefused as refused:
                self._raise_unless_lost(refused)
            await asyncio.sleep(RETRY_MS / 1000)

    async def _resolved(self, writes: Sequence[ZnodeWrite]) -> list[ZnodeWrite]:
        """Return writes as sets, creations and deletions, by what is there."""
        asked = [write.path for write in writes if write.kind in (WriteKind.PUT, WriteKind.DROP)]
        there = dict.fromkeys(await self._there(asked))
        found: list[ZnodeWrite] = []
        for write in writes:
            is_there = write.path in there
            match write.kind:
                case WriteKind.PUT if write.data is None and is_there:
                    continue
                case WriteKind.PUT:
                    kind = WriteKind.SET if is_there else WriteKind.CREATE
                    there[write.path] = None
                    found.append(ZnodeWrite(kind=kind, path=write.path, data=write.data))
                case WriteKind.DROP:
                    found += [ZnodeWrite(kind=WriteKind.DELETE, path=write.path)] if is_there else []
                case _:
                    found += await expanded(self._client, write)
        return found

    async def _there(self, paths: Iterable[str]) -> list[str]:
        wanted = list(paths)
        stats = await asyncio.gather(*map(self._client.exists, wanted))
        return [path for path, stat in zip(wanted, stats, strict=True) if stat is not None]

    async def _has_happened(self, writes: Sequence[ZnodeWrite]) -> bool:
        """Tell whether writes happened whose connection was lost: any of those that shows it stands for all."""
        probe = next((write for write in writes if write.kind is WriteKind.CREATE or write.version != ANY_VERSION), None)
        if probe is None:
            return False  # they can be done twice
        while True:
            await asyncio.sleep(RETRY_MS / 1000)
            try:
                data, stat = await self._client.get(probe.path)
                return data == probe.data and stat.version == (0 if probe.kind is WriteKind.CREATE else probe.version + 1)
            except ZookeeperRefused as refused:
                if refused.error == ZookeeperError.NO_NODE:
                    return False
                self._raise_unless_lost(refused)

    def _raise_unless_lost(self, refused: ZookeeperRefused) -> None:
        if refused.error != ZookeeperError.CONNECTION_LOSS or self._client.state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise refused
