"""How coordinators append to their partitions: like a producer with acks=all inside the broker.

Source: kafka.server.ReplicaManager.appendRecords with AppendOrigin.Coordinator, DelayedProduce.
"""

from collections.abc import Callable

from kraftsim.core.decision import Refusal
from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.partitions import PartitionKey, Partitions
from kraftsim.partitions.rules_append import AppendDecision
from kraftsim.server.purgatory import Purgatory
from kraftsim.world.interface import Clock
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch
from protocol.records.record import Compression

OnEnd = Callable[[ErrorCode], None]


class CoordinatorLog:
    """Appends batches, and waits at most `timeout_ms` (offsets.commit.timeout.ms) for the other
    replicas.
    """

    def __init__(
        self,
        partitions: Partitions,
        produces: Purgatory[PartitionKey],
        fetches: Purgatory[PartitionKey],
        clock: Clock,
        *,
        timeout_ms: int,
        compression: Compression,
    ) -> None:
        self.compression = compression
        self._partitions = partitions
        self._produces = produces
        self._fetches = fetches
        self._clock = clock
        self._timeout_ms = timeout_ms

    def append(
        self, hosted: HostedPartition, batch: RecordBatch, acks: int, guard: int | None = None
    ) -> AppendDecision | Refusal:
        """Append a batch, or return the error.

        `guard`: the verification guard that `begin_verification` returned.
        """
        try:
            outcome = hosted.append_by_coordinator(batch, acks, self._clock.wall_ms(), guard)
        except OSError as failure:
            self._partitions.disk_failed(hosted.log.directory, "write", failure)
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        if isinstance(outcome, AppendDecision):
            self._fetches.check((hosted.topic, hosted.partition))
            return outcome
        return outcome

    def when_replicated(
        self,
        hosted: HostedPartition,
        required_offset: int,
        on_end: OnEnd,
        timeout_ms: int | None = None,
    ) -> None:
        """Call `on_end` once everything below an offset is on all in-sync replicas, never will be,
        or `timeout_ms` has passed.
        """

        def wait() -> None:
            waiting = CoordinatorReplication(self._partitions, hosted, required_offset, on_end)
            self._produces.try_complete_else_watch(
                waiting,
                [(hosted.topic, hosted.partition)],
                self._timeout_ms if timeout_ms is None else timeout_ms,
            )

        if hosted.owes_flush:
            self._partitions.flush_then([hosted], wait)
        else:
            wait()


class CoordinatorReplication:
    """A coordinator's append that waits for the in-sync replicas."""

    def __init__(
        self, partitions: Partitions, hosted: HostedPartition, required_offset: int, on_end: OnEnd
    ) -> None:
        self._partitions = partitions
        self._hosted = hosted
        self._required_offset = required_offset
        self._on_end = on_end

    def try_complete(self) -> bool:
        """Report the result, if it is known."""
        hosted = self._hosted
        is_here = self._partitions.find(hosted.topic, hosted.partition) is hosted
        outcome = (
            hosted.replica.replicated(self._required_offset)
            if is_here
            else ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        if outcome is None:
            return False
        self._on_end(outcome)
        return True

    def expire(self) -> None:
        """Report a timeout."""
        self._on_end(ErrorCode.REQUEST_TIMED_OUT)
