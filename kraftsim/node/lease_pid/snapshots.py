"""The snapshot of a server: written periodically, and loaded first at startup.

The logs are flushed before it is written: a snapshot must not be newer than the logs after a power failure.
After a truncation the snapshot may describe truncated messages, so a new one is written before the next
message.   Source: the lease_pid draft.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from kraftsim.core.lease_pid.lease_snapshot import restore, snapshot_of
from kraftsim.events.lease_pid import LeasedServerRecovered
from kraftsim.node.lease_pid.replica import Replica
from kraftsim.world.interface import World
from protocol.lease_pid.stored import StoredSnapshot, build_stored, parse_snapshot
from protocol.malformed import MalformedMessage

FILE: Final = "leases.snapshot"


class LeaseSnapshots:
    """One file for all partitions of a server."""

    def __init__(self, world: World, replicas: Mapping[tuple[str, int], Replica], interval_ms: int) -> None:
        self._world = world
        self._replicas = replicas
        self._interval_ms = interval_ms

    def recover(self) -> None:
        """Read the logs, and restore the producer state of each partition from snapshot and log. Raises OSError."""
        snapshot = self.stored()
        messages = replayed = producers = 0
        for where, replica in self._replicas.items():
            replica.log.recover()
            replayed += replica.replay(restore(snapshot, where, replica.leased, replica.log.end_offset))
            messages += replica.log.end_offset
            producers += len(replica.leased)
        self._world.emit(LeasedServerRecovered(messages=messages, replayed=replayed, producers=producers))

    def stored(self) -> StoredSnapshot | None:
        """Return the snapshot on disk; None if there is no readable one: then logs are replayed from the start."""
        try:
            return parse_snapshot(self._world.disk.read(FILE))
        except (FileNotFoundError, MalformedMessage):
            return None

    async def run(self) -> None:
        """Write a snapshot periodically."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self.write()

    async def write(self) -> None:
        """Write a snapshot. Raises OSError."""
        snapshot = snapshot_of({where: (replica.leased, replica.log.end_offset) for where, replica in self._replicas.items()})
        for replica in self._replicas.values():
            await replica.log.flush()
        await self._world.disk.replace(FILE, build_stored(snapshot))
