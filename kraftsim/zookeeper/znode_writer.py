"""Controller writes to znodes, conditional on the controller epoch, and in a migration also on the
version of /migration.

A request whose connection was lost is retried over the next connection; its result shows whether
the first attempt happened.
Source: kafka.zk.KafkaZkClient.{retryRequestsUntilConnected, retryMigrationRequestsUntilConnected}.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from kraftsim.zookeeper.client import (
    OPEN_TO_ALL,
    SessionState,
    ZookeeperClient,
    ZookeeperRefused,
)
from kraftsim.zookeeper.rules_znode_writes import WriteKind, ZnodeOperation, ZnodeWrite
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
"""Errors that mean that the write happened before."""


class ControllerMoved(Exception):
    """Another controller was elected: /controller_epoch has another version."""


class MigrationConflict(Exception):
    """Another KRaft controller writes to ZooKeeper: /migration has another version."""


class MigrationWriter:
    """Carries out the operations of a KRaft controller.

    `migration_version` is that of /migration, which each operation increments.
    """

    def __init__(
        self, client: ZookeeperClient, *, epoch_version: int, migration_version: int
    ) -> None:
        self.migration_version = migration_version
        self._client = client
        self._epoch_version = epoch_version

    async def carry_out(self, operation: ZnodeOperation, migration_data: bytes) -> None:
        """Do all of an operation, then notify brokers; its last write updates /migration.

        Znodes whose data alone changes, such as partition states, are written several at a time.
        Raises ControllerMoved, MigrationConflict, ZookeeperRefused.
        """
        writes = [
            each for write in operation.writes for each in await expanded(self._client, write)
        ]
        apart = writes[:-1] if all(write.kind is WriteKind.SET for write in writes) else []
        for first in range(0, len(apart), IN_FLIGHT_MAX):
            await self._do_together(apart[first : first + IN_FLIGHT_MAX])
        rest = writes[len(apart) :]
        for place, write in enumerate(rest):
            known = self.migration_version
            is_last = place == len(rest) - 1
            for request in requests_of(write):
                migration = (
                    set_request(MIGRATION, migration_data, known)
                    if is_last
                    else check_request(MIGRATION, known)
                )
                if await self._do(
                    [check_request(CONTROLLER_EPOCH, self._epoch_version), migration, request],
                    write,
                ):
                    break
                await create_above(self._client, write.path)
        if operation.notification is not None:
            await retried(self._client, requests_of(operation.notification))

    async def _do_together(self, writes: Sequence[ZnodeWrite]) -> None:
        """Set the data of some znodes with pipelined requests."""
        checks = [
            check_request(CONTROLLER_EPOCH, self._epoch_version),
            check_request(MIGRATION, self.migration_version),
        ]
        asked = (
            self._do([*checks, set_request(write.path, write.data, write.version)], write)
            for write in writes
        )
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _do(self, asked: Sequence[Asked], write: ZnodeWrite) -> bool:
        """Do one request; return False if the znode does not exist but can be created."""
        try:
            results = await retried(self._client, asked)
        except ZookeeperRefused as refused:
            if refused.path == MIGRATION and refused.error == ZookeeperError.BAD_VERSION:
                raise MigrationConflict(
                    f"{MIGRATION} no longer has version {self.migration_version}"
                ) from refused
            if refused.path == write.path and refused.error in PASSED_OVER.get(write.kind, ()):
                return True
            if (
                refused.path == write.path
                and refused.error == ZookeeperError.NO_NODE
                and write.kind is WriteKind.PUT
            ):
                return False
            raise
        stat = results[1][1]
        if isinstance(stat, StatResponse):
            self.migration_version = stat.stat.version
        return True


async def retried(client: ZookeeperClient, asked: Sequence[Asked]) -> list[Result]:
    """Do requests atomically, with a retry after each lost connection.

    Raises ControllerMoved, ZookeeperRefused.
    """
    while True:
        try:
            return await client.multi(asked)
        except ZookeeperRefused as refused:
            if refused.path == CONTROLLER_EPOCH and refused.error == ZookeeperError.BAD_VERSION:
                raise ControllerMoved(
                    f"{CONTROLLER_EPOCH} has another version than this controller gave it"
                ) from refused
            if refused.error != ZookeeperError.CONNECTION_LOSS or client.state in (
                SessionState.EXPIRED,
                SessionState.CLOSED,
            ):
                raise
        await asyncio.sleep(RETRY_MS / 1000)


async def expanded(client: ZookeeperClient, write: ZnodeWrite) -> list[ZnodeWrite]:
    """Expand a write to single ones: a tree is deleted bottom-up. Raises ZookeeperRefused."""
    if write.kind is not WriteKind.DELETE_TREE:
        return [write]
    return [
        ZnodeWrite(kind=WriteKind.DELETE, path=path)
        for path in [*await paths_below(client, write.path), write.path]
    ]


async def paths_below(client: ZookeeperClient, path: str) -> list[str]:
    """Return all descendants of a znode, children before their parents. Raises ZookeeperRefused."""
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
    """Create the missing ancestors of a path. Raises ZookeeperRefused."""
    parts = path.split("/")[1:-1]
    for count in range(1, len(parts) + 1):
        try:
            await client.create("/" + "/".join(parts[:count]), None)
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NODE_EXISTS:
                raise


def requests_of(write: ZnodeWrite) -> Sequence[Asked]:
    """Return the requests of a write; for a PUT first the set, then the create."""
    return list(_requests_of(write))


def _requests_of(write: ZnodeWrite) -> Iterator[Asked]:
    if write.kind in (WriteKind.SET, WriteKind.PUT):
        yield set_request(write.path, write.data, write.version)
    if write.kind in (WriteKind.CREATE, WriteKind.PUT):
        yield create_request(write.path, write.data, write.mode)
    if write.kind in (WriteKind.DELETE, WriteKind.DROP):
        yield OpCode.DELETE, VersionedPath(path=write.path, version=write.version)


def check_request(path: str, version: int) -> Asked:
    """Return a request that fails the multi unless a znode has a version."""
    return OpCode.CHECK, VersionedPath(path=path, version=version)


def set_request(path: str, data: bytes | None, version: int = ANY_VERSION) -> Asked:
    """Return a request that sets the data of a znode."""
    return OpCode.SET_DATA, SetDataRequest(path=path, data=data, version=version)


def create_request(
    path: str, data: bytes | None, mode: CreateMode = CreateMode.PERSISTENT
) -> Asked:
    """Return a request that creates a znode."""
    return OpCode.CREATE, CreateRequest(path=path, data=data, acl=[OPEN_TO_ALL], flags=mode)
