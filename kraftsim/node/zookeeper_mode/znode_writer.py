"""Writes znodes as a controller: each write only if nobody has become controller since, and in a migration only if no other KRaft controller writes.

A request whose connection was lost is sent again once there is another connection; what came of the first one shows then.
Source: kafka.zk.KafkaZkClient.{retryRequestsUntilConnected, retryMigrationRequestsUntilConnected}.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from kraftsim.core.zookeeper_mode.znode_writing import WriteKind, ZnodeOperation, ZnodeWrite
from kraftsim.node.zookeeper.client import OPEN_TO_ALL, SessionState, ZookeeperClient, ZookeeperRefused
from protocol.zookeeper.kafka_znodes import CONTROLLER_EPOCH, MIGRATION
from protocol.zookeeper.multi import Asked, Result
from protocol.zookeeper.op_codes import ANY_VERSION, CreateMode, OpCode, ZookeeperError
from protocol.zookeeper.znodes import CreateRequest, SetDataRequest, StatResponse, VersionedPath

RETRY_MS: Final = 100
IN_FLIGHT_MAX: Final = 10
"""Kafka's zookeeper.max.in.flight.requests."""
PASSED_OVER: Final = {
    WriteKind.CREATE: (ZookeeperError.NODE_EXISTS,),
    WriteKind.DROP: (ZookeeperError.NO_NODE,),
    WriteKind.DELETE: (ZookeeperError.NO_NODE,),
}
"""Refusals that say that it was done before."""


class ControllerMoved(Exception):
    """Somebody else has become controller: /controller_epoch has another version."""


class MigrationConflict(Exception):
    """Another KRaft controller writes to ZooKeeper: /migration has another version."""


class MigrationWriter:
    """Carries out the operations of a KRaft controller. `migration_version` is that of /migration, and moves with each operation."""

    def __init__(self, client: ZookeeperClient, *, epoch_version: int, migration_version: int) -> None:
        self.migration_version = migration_version
        self._client = client
        self._epoch_version = epoch_version

    async def carry_out(self, operation: ZnodeOperation, migration_data: bytes) -> None:
        """Do all of an operation, then tell brokers; its last write says /migration anew.

        Znodes that are only given other data, as the states of partitions are, are written several at once.
        Raises ControllerMoved, MigrationConflict, ZookeeperRefused.
        """
        writes = [each for write in operation.writes for each in await expanded(self._client, write)]
        apart = writes[:-1] if all(write.kind is WriteKind.SET for write in writes) else []
        for first in range(0, len(apart), IN_FLIGHT_MAX):
            await self._do_together(apart[first : first + IN_FLIGHT_MAX])
        rest = writes[len(apart) :]
        for place, write in enumerate(rest):
            known = self.migration_version
            is_last = place == len(rest) - 1
            for request in requests_of(write):
                migration = set_request(MIGRATION, migration_data, known) if is_last else check_request(MIGRATION, known)
                if await self._do([check_request(CONTROLLER_EPOCH, self._epoch_version), migration, request], write):
                    break
                await create_above(self._client, write.path)
        if operation.notification is not None:
            await retried(self._client, requests_of(operation.notification))

    async def _do_together(self, writes: Sequence[ZnodeWrite]) -> None:
        """Give some znodes other data, before any of the answers is there."""
        checks = [check_request(CONTROLLER_EPOCH, self._epoch_version), check_request(MIGRATION, self.migration_version)]
        asked = (self._do([*checks, set_request(write.path, write.data, write.version)], write) for write in writes)
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _do(self, asked: Sequence[Asked], write: ZnodeWrite) -> bool:
        """Do one request; False if what it is about is not there, but can be made."""
        try:
            results = await retried(self._client, asked)
        except ZookeeperRefused as refused:
            if refused.path == MIGRATION and refused.error == ZookeeperError.BAD_VERSION:
                raise MigrationConflict(f"{MIGRATION} has not version {self.migration_version} any more") from refused
            if refused.path == write.path and refused.error in PASSED_OVER.get(write.kind, ()):
                return True
            if refused.path == write.path and refused.error == ZookeeperError.NO_NODE and write.kind is WriteKind.PUT:
                return False
            raise
        stat = results[1][1]
        if isinstance(stat, StatResponse):
            self.migration_version = stat.stat.version
        return True


async def retried(client: ZookeeperClient, asked: Sequence[Asked]) -> list[Result]:
    """Do all of some requests or none, again after each lost connection. Raises ControllerMoved, ZookeeperRefused."""
    while True:
        try:
            return await client.multi(asked)
        except ZookeeperRefused as refused:
            if refused.path == CONTROLLER_EPOCH and refused.error == ZookeeperError.BAD_VERSION:
                raise ControllerMoved(f"{CONTROLLER_EPOCH} has another version than this controller gave it") from refused
            if refused.error != ZookeeperError.CONNECTION_LOSS or client.state in (SessionState.EXPIRED, SessionState.CLOSED):
                raise
        await asyncio.sleep(RETRY_MS / 1000)


async def expanded(client: ZookeeperClient, write: ZnodeWrite) -> list[ZnodeWrite]:
    """Return a write as single ones: a tree is deleted from below. Raises ZookeeperRefused."""
    if write.kind is not WriteKind.DELETE_TREE:
        return [write]
    return [ZnodeWrite(kind=WriteKind.DELETE, path=path) for path in [*await paths_below(client, write.path), write.path]]


async def paths_below(client: ZookeeperClient, path: str) -> list[str]:
    """Return all that is below a znode, children before their parents. Raises ZookeeperRefused."""
    try:
        names, _ = await client.children(path)
    except ZookeeperRefused as refused:
        if refused.error != ZookeeperError.NO_NODE:
            raise
        return []
    found: list[str] = []
    for name in names:
        found += [*await paths_below(client, f"{path}/{name}"), f"{path}/{name}"]
    return found


async def create_above(client: ZookeeperClient, path: str) -> None:
    """Create what is above a path and not there. Raises ZookeeperRefused."""
    parts = path.split("/")[1:-1]
    for count in range(1, len(parts) + 1):
        try:
            await client.create("/" + "/".join(parts[:count]), None)
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NODE_EXISTS:
                raise


def requests_of(write: ZnodeWrite) -> Sequence[Asked]:
    """Return how a write is asked for; of a PUT first how it is set, and then how it is made."""
    return list(_requests_of(write))


def _requests_of(write: ZnodeWrite) -> Iterator[Asked]:
    if write.kind in (WriteKind.SET, WriteKind.PUT):
        yield set_request(write.path, write.data, write.version)
    if write.kind in (WriteKind.CREATE, WriteKind.PUT):
        yield create_request(write.path, write.data, write.mode)
    if write.kind in (WriteKind.DELETE, WriteKind.DROP):
        yield OpCode.DELETE, VersionedPath(path=write.path, version=write.version)


def check_request(path: str, version: int) -> Asked:
    """Return a request that fails, and all beside it, unless a znode has a version."""
    return OpCode.CHECK, VersionedPath(path=path, version=version)


def set_request(path: str, data: bytes | None, version: int = ANY_VERSION) -> Asked:
    """Return a request that gives a znode other data."""
    return OpCode.SET_DATA, SetDataRequest(path=path, data=data, version=version)


def create_request(path: str, data: bytes | None, mode: CreateMode = CreateMode.PERSISTENT) -> Asked:
    """Return a request that makes a znode."""
    return OpCode.CREATE, CreateRequest(path=path, data=data, acl=[OPEN_TO_ALL], flags=mode)
