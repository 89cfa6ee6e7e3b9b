"""One of the directories in which a broker keeps partitions: what it knew of them when it stopped last, and whether it can be relied on.

Source: kafka.log.LogManager (checkpoints, clean shutdown files), OffsetCheckpointFile.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from kraftsim.world.interface import World
from protocol.disk.clean_shutdown import build_clean_shutdown, parse_clean_shutdown
from protocol.disk.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    partition_directory_name,
)
from protocol.disk.offset_checkpoint import build_offset_checkpoint, parse_offset_checkpoint
from protocol.malformed import MalformedMessage

NO_BROKER_EPOCH = -1
PartitionKey = tuple[str, int]
"""Topic name and partition number."""
Offsets = Mapping[PartitionKey, int]
"""What a checkpoint file says."""


class LogDirectory:
    """`path` is what log.dirs says, `world` has it as its disk. OSErrors pass through everywhere; whoever gets one calls `take_offline`."""

    def __init__(self, path: str, world: World, directory_id: bytes) -> None:
        self.path = path
        self.world = world
        self.directory_id = directory_id
        self.failure: OSError | None = None
        """Why it is offline; None while it is in use."""
        self.was_stopped_cleanly = False
        self._said: dict[str, Offsets] = {}
        """What each checkpoint file says now."""
        self._writing = asyncio.Lock()
        self._recovery_points: dict[PartitionKey, int] = {}
        self._high_watermarks: dict[PartitionKey, int] = {}
        self._log_starts: dict[PartitionKey, int] = {}
        self._cleaned_until: dict[PartitionKey, int] = {}

    @property
    def is_online(self) -> bool:
        """Whether partitions are kept in it."""
        return self.failure is None

    def take_offline(self, failure: OSError) -> bool:
        """Nothing in it can be believed any more: tell whether that is news."""
        is_news = self.failure is None
        self.failure = self.failure or failure
        return is_news

    # What the last run knew ----------------------------------------------------------------------------------------------------------------

    async def load(self) -> int:
        """Read what the last stop left, and return the broker epoch of that stop if it was a clean one (else -1)."""
        disk = self.world.disk
        self._recovery_points = self._stored(RECOVERY_POINTS)  # without it every log is looked at from its beginning
        self._high_watermarks = self._stored(REPLICATION_OFFSETS)
        self._log_starts = self._stored(LOG_START_OFFSETS)
        self._cleaned_until = self._stored(CLEANER_OFFSETS)
        if not disk.exists(CLEAN_SHUTDOWN):
            return NO_BROKER_EPOCH
        self.was_stopped_cleanly = True
        try:
            previous_broker_epoch = parse_clean_shutdown(disk.read(CLEAN_SHUTDOWN))
        except MalformedMessage:
            previous_broker_epoch = NO_BROKER_EPOCH
        disk.remove(CLEAN_SHUTDOWN)
        await disk.flush_directory("")  # or it would be back after a power loss, and vouch for logs that were not closed
        return previous_broker_epoch

    def recovery_point(self, key: PartitionKey) -> int | None:
        """Return up to where a log was durable; None if all of it is, because it was closed in good order."""
        return None if self.was_stopped_cleanly else self._recovery_points.get(key, 0)

    def high_watermark(self, key: PartitionKey) -> int | None:
        """Return up to where a log was replicated, as far as that is known."""
        return self._high_watermarks.get(key)

    def log_start(self, key: PartitionKey) -> int:
        """Return where a log began."""
        return self._log_starts.get(key, 0)

    def cleaned_until(self, key: PartitionKey) -> int | None:
        """Return up to where a log is clean; None if it never was cleaned."""
        return self._cleaned_until.get(key)

    def uncleaned_from(self, key: PartitionKey) -> int | None:
        """Return from where on nothing of a log was cleaned, as far as the last run tells; None if it was closed in good order.

        Nothing is cleaned here before it is known to be durable. Logs of Apache Kafka may be clean beyond that, up to what their cleaner says.
        """
        recovery_point = self.recovery_point(key)
        return None if recovery_point is None else max(recovery_point, self._cleaned_until.get(key, 0))

    def forget(self, key: PartitionKey) -> None:
        """A partition is kept here no more."""
        for known in (self._recovery_points, self._high_watermarks, self._log_starts, self._cleaned_until):
            known.pop(key, None)

    # What the next run shall know ----------------------------------------------------------------------------------------------------------

    async def begin_anew(self, key: PartitionKey) -> None:
        """Before a log begins here: nothing that is still said of one of the same name, which went, must be taken for it after a crash."""
        self.forget(key)
        async with self._writing:
            if any(key in said for said in self._said.values()):
                there = {*self.world.disk.list("")}
                for file, said in [*self._said.items()]:
                    await self._write(file, {each: said[each] for each in said if each != key and partition_directory_name(*each) in there})

    async def store_recovery_points(self, offsets: Callable[[], Offsets]) -> None:
        """Write up to where each log is durable. As with the others, `offsets` is asked when it is this one's turn to write."""
        await self._store(RECOVERY_POINTS, offsets)

    async def lower_recovery_point(self, key: PartitionKey, offset: int) -> None:
        """A log was cut: what was durable behind `offset` is no more, and what comes in its place is not yet."""
        if self._said.get(RECOVERY_POINTS, {}).get(key, 0) > offset:
            await self._store(RECOVERY_POINTS, lambda: {**self._said[RECOVERY_POINTS], key: offset})

    async def lower_log_start(self, key: PartitionKey, offset: int) -> None:
        """A log was begun anew: a later beginning that was written for the former one would take records from it in the next run."""
        if self._said.get(LOG_START_OFFSETS, {}).get(key, 0) > offset:
            await self._store(LOG_START_OFFSETS, lambda: {**self._said[LOG_START_OFFSETS], key: offset})

    async def raise_recovery_point(self, key: PartitionKey, offset: int) -> None:
        """Say, if it is not said yet, that a log is durable up to here."""
        if self._said.get(RECOVERY_POINTS, {}).get(key, 0) < offset:
            await self._store(RECOVERY_POINTS, lambda: {**self._said.get(RECOVERY_POINTS, {}), key: offset})

    async def store_high_watermarks(self, offsets: Callable[[], Offsets]) -> None:
        """Write up to where each log is replicated: what the next run goes by where it does not lead."""
        await self._store(REPLICATION_OFFSETS, offsets)

    async def store_log_starts(self, offsets: Callable[[], Offsets]) -> None:
        """Write where each log begins."""
        await self._store(LOG_START_OFFSETS, offsets)

    async def store_cleaned_until(self, key: PartitionKey, offset: int) -> None:
        """Write up to where a log is clean now."""
        self._cleaned_until[key] = offset
        await self._store(CLEANER_OFFSETS, lambda: self._cleaned_until)

    def keep_only(self, keys: Iterable[PartitionKey]) -> None:
        """Forget how clean the logs are that are not among these."""
        kept = dict.fromkeys(keys)
        self._cleaned_until = {key: offset for key, offset in self._cleaned_until.items() if key in kept}

    async def mark_clean_stop(self, broker_epoch: int | None) -> None:
        """Leave the mark of a clean stop: after everything in it was closed and flushed."""
        await self.world.disk.replace(CLEAN_SHUTDOWN, build_clean_shutdown(broker_epoch))

    def _stored(self, file: str) -> dict[PartitionKey, int]:
        """Return the offsets that a checkpoint file of the last run holds; none if it cannot be read."""
        disk = self.world.disk
        try:
            found = parse_offset_checkpoint(disk.read(file), file) if disk.exists(file) else {}
        except MalformedMessage:
            found = {}
        self._said[file] = dict(found)
        return found

    async def _store(self, file: str, offsets: Callable[[], Offsets]) -> None:
        async with self._writing:
            await self._write(file, offsets())

    async def _write(self, file: str, offsets: Offsets) -> None:
        said = dict(sorted(offsets.items()))
        await self.world.disk.replace(file, build_offset_checkpoint(said))
        self._said[file] = said
