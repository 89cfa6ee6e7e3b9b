"""Pending verifications: producers about to write the first records of a transaction, while the coordinator is asked to verify it.

A verification and its append are bound by a guard. The first records of the transaction, or any marker, invalidate the guard: a verification that
completes after a marker belongs to a completed transaction, and must not start another one (KAFKA-14884). Besides, the lowest sequence seen has to be
written first: were a later batch written first, the earlier one would be out of order permanently (KAFKA-14920).

Source: KIP-890, org.apache.kafka.storage.internals.log.{VerificationStateEntry, VerificationGuard}, UnifiedLog.maybeStartTransactionVerification.
"""


class Verification:
    """The state of a producer from the first verification to the first record. `begun_ms` is the wall clock."""

    __slots__ = ("adds", "begun_ms", "guard", "lowest_sequence", "producer_epoch")

    def __init__(self, guard: int, producer_epoch: int, base_sequence: int, begun_ms: int, *, adds: bool) -> None:
        self.guard = guard
        self.adds = adds
        """Whether the coordinator adds the partition: then each transaction of the producer has its own epoch and starts its own sequences."""
        self.producer_epoch = producer_epoch
        self.lowest_sequence = base_sequence
        self.begun_ms = begun_ms

    def take(self, producer_epoch: int, base_sequence: int) -> None:
        """Another batch waits as well: of a later epoch, or of this one."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, base_sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, base_sequence)


class Verifications:
    """By producer id. Guards are unique."""

    __slots__ = ("_begun", "_last_guard")

    def __init__(self) -> None:
        self._begun: dict[int, Verification] = {}
        self._last_guard = 0

    def begin(self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int, *, adds: bool) -> int:
        """Return the guard of a producer: the existing one until something is written. `now_ms` is the wall clock."""
        known = self._begun.get(producer_id)
        if known is None:
            self._last_guard += 1
            self._begun[producer_id] = Verification(self._last_guard, producer_epoch, base_sequence, now_ms, adds=adds)
            return self._last_guard
        known.take(producer_epoch, base_sequence)
        return known.guard

    def holds(self, producer_id: int, guard: int | None) -> bool:
        """Return whether a guard is the current one of its producer."""
        known = self._begun.get(producer_id)
        return known is not None and known.guard == guard

    def of(self, producer_id: int) -> Verification | None:
        """Return the pending verification of a producer."""
        return self._begun.get(producer_id)

    def end(self, producer_id: int) -> None:
        """The first records or the marker of a transaction were written."""
        self._begun.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove verifications without a write for this long. `now_ms` is the wall clock."""
        for producer_id in [each for each, begun in self._begun.items() if now_ms - begun.begun_ms >= expiration_ms]:
            del self._begun[producer_id]
