"""The messages of one partition on one server: in memory for reads, in a file for recovery.

The owner decides when to flush; acknowledgements rely on replication, as in Kafka.
Source: the lease_pid draft.
"""

from kraftsim.world.interface import File, World
from protocol.lease_pid.messages import FoundMessage
from protocol.lease_pid.stored import StoredMessage, build_stored, split_stored

NO_EPOCH = -1


class MessageLog:
    """Call `recover` first. Offsets are those of messages; there is no other kind of entry."""

    def __init__(self, world: World, topic: str, partition: int) -> None:
        self.path = f"{topic}-{partition}/messages.log"
        self.stored: list[StoredMessage] = []
        self._ends: list[int] = []
        """The end position of each message in the file."""
        self._world = world
        self._file: File | None = None

    @property
    def end_offset(self) -> int:
        """The offset of the next message."""
        return len(self.stored)

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last message."""
        return self.stored[-1].found.leader_epoch if self.stored else NO_EPOCH

    def recover(self) -> None:
        """Read the file, and truncate a torn end. Raises OSError."""
        self._file = self._world.disk.open(self.path)
        for stored, end in split_stored(self._file.read(0, self._file.size_bytes)):
            self.stored.append(stored)
            self._ends.append(end)
        if self._file.size_bytes > self._size():
            self._file.truncate(self._size())

    def append(self, found: FoundMessage, arrived_ms: int) -> None:
        """Append a message. Raises OSError."""
        assert found.offset == self.end_offset, "messages are appended in offset order"
        stored = StoredMessage(arrived_ms=arrived_ms, found=found)
        data = build_stored(stored)
        self._open().append([data])
        self._ends.append(self._size() + len(data))
        self.stored.append(stored)

    def truncate(self, end_offset: int) -> None:
        """Truncate the log to an offset. Raises OSError."""
        del self.stored[end_offset:], self._ends[end_offset:]
        self._open().truncate(self._size())

    def end_of_epoch(self, leader_epoch: int) -> int:
        """Return the first offset of later leader epochs."""
        return next(
            (
                place
                for place, each in enumerate(self.stored)
                if each.found.leader_epoch > leader_epoch
            ),
            self.end_offset,
        )

    async def flush(self) -> None:
        """Flush the file. Raises OSError."""
        await self._open().flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        assert self._file is not None, "a log is recovered before it is used"
        return self._file

    def _size(self) -> int:
        return self._ends[-1] if self._ends else 0
