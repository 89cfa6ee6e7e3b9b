"""The snapshot of a server: written now and then, and read first when it starts.

The logs are flushed before it is written: what a snapshot says must not be younger than what a power loss leaves of the logs. When a log is cut, what
the snapshot says of it may be of messages that are gone, so another one is written before the next message.   Source: the lease_pid draft.
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
        """Read the logs, and let each partition know what snapshot and log say of its producers. Raises OSError."""
        snapshot = self.stored()
        messages = replayed = producers = 0
        for where, replica in self._replicas.items():
            replica.log.recover()
            replayed += replica.replay(restore(snapshot, where, replica.leased, replica.log.end_offset))
            messages += replica.log.end_offset
            producers += len(replica.leased)
        self._world.note(LeasedServerRecovered(messages=messages, replayed=replayed, producers=producers))

    def stored(self) -> StoredSnapshot | None:
        """Return the snapshot on the disk; None where there is none that can be read: then logs are replayed from their beginnings."""
        try:
            return parse_snapshot(self._world.disk.read(FILE))
        except (FileNotFoundError, MalformedMessage):
            return None

    async def run(self) -> None:
        """Write one now and then."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self.write()

    async def write(self) -> None:
        """Write one. Raises OSError."""
        snapshot = snapshot_of({where: (replica.leased, replica.log.end_offset) for where, replica in self._replicas.items()})
        for replica in self._replicas.values():
            await replica.log.flush()
        await self._world.disk.replace(FILE, build_stored(snapshot))
