"""The server's files in ZooKeeper's own formats: changes are logged and flushed before any client
sees them.

Each start begins a new log file, so a torn end of an older one needs no truncation; a snapshot
allows older logs to be purged.
Source: org.apache.zookeeper.server.persistence.{FileTxnSnapLog, FileTxnLog, FileSnap}, PurgeTxnLog.
"""

from collections.abc import Sequence
from typing import Final

from kraftsim.server.config_keys import ConfigError
from kraftsim.world.interface import File, World
from kraftsim.zookeeper.events import ZookeeperRecovered
from kraftsim.zookeeper.rules_keeper import ServerState, load, snapshot_of
from protocol.malformed import MalformedMessage
from protocol.schema import Message
from protocol.zookeeper.txn_log import (
    HEADER_BYTES,
    TxnHeader,
    build_log_header,
    build_log_record,
    parse_snapshot,
    split_log,
)

DIRECTORY: Final = "version-2"
SNAPSHOTS_KEPT: Final = 3
"""autopurge.snapRetainCount."""


class ZookeeperFiles:
    """The transaction log that is written, and recovery from snapshots and logs."""

    def __init__(self, world: World, changes_between_snapshots: int) -> None:
        self._world = world
        self._changes_max = changes_between_snapshots
        self._changes = 0
        self._log: File | None = None

    def recover(self, znode_state: ServerState, now_ms: int) -> None:
        """Restore the server state from the newest complete snapshot and the transactions after it.

        Raises ConfigError, OSError.
        """
        for zxid, name in reversed(self._files("snapshot.")):
            try:
                load(
                    znode_state,
                    parse_snapshot(self._world.disk.read(f"{DIRECTORY}/{name}")),
                    zxid,
                    now_ms,
                )
                break
            except MalformedMessage:
                # incomplete after a power failure; an older one and the logs contain the same state
                continue
        truncated_bytes = 0
        for zxid, name in self._files("log."):
            data = self._world.disk.read(f"{DIRECTORY}/{name}")
            if zxid > znode_state.last_zxid + 1:
                raise ConfigError(
                    f"{DIRECTORY}/{name} starts with transaction {zxid:#x}, but the earlier "
                    f"files end with {znode_state.last_zxid:#x}"
                )
            truncated_bytes = (
                self._replay(znode_state, name, data, now_ms) if _has_begun(data) else len(data)
            )
        self._world.emit(
            ZookeeperRecovered(
                zxid=znode_state.last_zxid,
                znodes=len(znode_state.tree.znodes),
                sessions=len(znode_state.sessions.by_id),
                truncated_bytes=truncated_bytes,
            )
        )

    async def begin(self, znode_state: ServerState) -> None:
        """Flush the recovered files, and write the first snapshot, without which ZooKeeper rejects
        a log. Raises OSError.

        A killed server leaves transactions only in the page cache. Clients see them from now on,
        and new transactions follow them: a power failure must not remove them from the middle of
        the history.
        """
        for _, name in self._files("log."):
            log = self._world.disk.open(f"{DIRECTORY}/{name}")
            await log.flush()
            log.close()
        if not self._files("snapshot."):
            await self._write_snapshot(znode_state)

    async def write(self, txns: Sequence[tuple[TxnHeader, Message]]) -> None:
        """Append transactions and flush them. Raises OSError."""
        log = self._log
        if log is None:
            log = self._log = self._world.disk.open(f"{DIRECTORY}/log.{txns[0][0].zxid:x}")
            if log.size_bytes:
                log.truncate(0)  # it contains no complete transaction
            log.append([build_log_header()])
            await self._world.disk.flush_directory(DIRECTORY)
        log.append([build_log_record(header, record) for header, record in txns])
        await log.flush()
        self._changes += len(txns)

    async def snapshot_if_due(self, znode_state: ServerState) -> None:
        """Write a snapshot when the log has grown enough, start a new log, and purge files older
        than the retained snapshots. Raises OSError.
        """
        if self._changes < self._changes_max:
            return
        self._changes = 0
        await self._write_snapshot(znode_state)
        self.close()
        kept = self._files("snapshot.")[-SNAPSHOTS_KEPT:]
        oldest = kept[0][0]
        logs = self._files("log.")
        needed = [number for number, _ in logs if number <= oldest + 1][-1:]
        for number, name in [*self._files("snapshot."), *logs]:
            is_old_log = name.startswith("log.") and needed and number < needed[0]
            if is_old_log or (name.startswith("snapshot.") and number < oldest):
                self._world.disk.remove(f"{DIRECTORY}/{name}")

    def close(self) -> None:
        """Close the log file."""
        if self._log is not None:
            self._log.close()
            self._log = None

    async def _write_snapshot(self, znode_state: ServerState) -> None:
        await self._world.disk.replace(
            f"{DIRECTORY}/snapshot.{znode_state.last_zxid:x}", snapshot_of(znode_state)
        )

    def _replay(self, znode_state: ServerState, name: str, data: bytes, now_ms: int) -> int:
        """Apply the transactions of a log that are not applied yet; return the number of incomplete
        bytes at its end.
        """
        end = HEADER_BYTES
        try:
            for header, record, position in split_log(data):
                end = position
                if header.zxid > znode_state.last_zxid:
                    znode_state.replay(header, record, now_ms)
                    self._changes += 1
        except MalformedMessage as malformed:
            raise ConfigError(
                f"{DIRECTORY}/{name} cannot be read: {malformed.reason}"
            ) from malformed
        return len(data[end:].rstrip(b"\0"))

    def _files(self, beginning: str) -> list[tuple[int, str]]:
        """Return the files of a kind with the zxid in their names, oldest first."""
        found: list[tuple[int, str]] = []
        for name in self._world.disk.list(DIRECTORY):
            if name.startswith(beginning):
                try:
                    found.append((int(name.removeprefix(beginning), 16), name))
                except ValueError:
                    continue
        return sorted(found)


def _has_begun(log: bytes) -> bool:
    """Return whether a log contains a complete header; the header is flushed with the first
    transaction, so no client has seen any before that.
    """
    return any(log[:HEADER_BYTES]) and len(log) >= HEADER_BYTES
