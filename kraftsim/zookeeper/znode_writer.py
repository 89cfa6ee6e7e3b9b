"""Controller writes to znodes, conditional on the controller epoch, and in a migration also on the
version of /migration.

A request whose connection was lost is retried over the next connection; its result shows whether
the first attempt happened.
Source: kafka.zk.KafkaZkClient.{retryRequestsUntilConnected, retryMigrationRequestsUntilConnected}.
"""

import asyncio
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final

from kraftsim.zookeeper.client import OPEN_TO_ALL, SessionState, ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.rules_znode_writes import WriteKind, ZnodeOperation, ZnodeWrite
from kraftsim.zookeeper.rules_znodes import Znodes
from protocol.zookeeper.kafka_access_znodes import ACLS, DELEGATION_TOKENS, EXTENDED_ACLS
from protocol.zookeeper.kafka_znodes import (
    CONFIG,
    CONFIG_TYPES,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    MIGRATION,
    PRODUCER_ID_BLOCK,
    TOPICS,
)
from protocol.zookeeper.op_codes import ANY_VERSION, CreateMode, OpCode, ZookeeperError
from protocol.zookeeper.znodes import (
    Asked,
    CreateRequest,
    Result,
    SetDataRequest,
    Stat,
    StatResponse,
    VersionedPath,
)

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
            raise_unless_lost(client, refused)
        await asyncio.sleep(RETRY_MS / 1000)


def raise_unless_lost(client: ZookeeperClient, refused: ZookeeperRefused) -> None:
    """Return after a lost connection of a session that goes on: the request may be repeated."""
    if refused.error != ZookeeperError.CONNECTION_LOSS or client.state in (
        SessionState.EXPIRED,
        SessionState.CLOSED,
    ):
        raise refused


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


# --------------------------------------------------------------------------------------------------
# Reads cluster metadata from ZooKeeper, all of it or a part, with pipelined requests
#
# Source: kafka.zk.KafkaZkClient (retryRequestsUntilConnected, pipelined by
# zookeeper.max.in.flight.requests).

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


# --------------------------------------------------------------------------------------------------
# Atomic writes of a ZooKeeper-mode controller, fenced by the version of /controller_epoch
#
# After a lost connection it reads back whether the write happened: a znode that has the next
# version and the written content was written.
# Source: kafka.zk.KafkaZkClient.{retryRequestsUntilConnected, wrapRequestWithControllerEpochCheck}.


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
                raise_unless_lost(self._client, refused)
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
                raise_unless_lost(self._client, refused)
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
                raise_unless_lost(self._client, refused)
