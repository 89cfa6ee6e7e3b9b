"""Which producers are about to write the first records of a transaction into this partition: the coordinator is being asked whether they may.

A question and its answer are bound together by a guard. The first record of the transaction, or any marker, takes the guard away: an answer that
comes after a marker belongs to a transaction that is over, and must not begin another one (KAFKA-14884). Besides, the lowest sequence that was seen
waits for its turn: were a later batch written first, the earlier one would be out of order for ever (KAFKA-14920).

Source: KIP-890, org.apache.kafka.storage.internals.log.{VerificationStateEntry, VerificationGuard}, UnifiedLog.maybeStartTransactionVerification.
"""


class Verification:
    """What is known of a producer from the first question to the first record. `begun_ms` is the wall clock."""

    __slots__ = ("adds", "begun_ms", "guard", "lowest_sequence", "producer_epoch")

    def __init__(self, guard: int, producer_epoch: int, base_sequence: int, begun_ms: int, *, adds: bool) -> None:
        self.guard = guard
        self.adds = adds
        """Whether the coordinator is told to add the partition: the producer begins each transaction with an epoch, and a sequence, of its own."""
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
    """By producer id. No guard is given twice."""

    __slots__ = ("_begun", "_last_guard")

    def __init__(self) -> None:
        self._begun: dict[int, Verification] = {}
        self._last_guard = 0

    def begin(self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int, *, adds: bool) -> int:
        """Return the guard of a producer, which is the one it has already while nothing was written. `now_ms` is the wall clock."""
        known = self._begun.get(producer_id)
        if known is None:
            self._last_guard += 1
            self._begun[producer_id] = Verification(self._last_guard, producer_epoch, base_sequence, now_ms, adds=adds)
            return self._last_guard
        known.take(producer_epoch, base_sequence)
        return known.guard

    def holds(self, producer_id: int, guard: int | None) -> bool:
        """Tell whether a guard is still the one of its producer."""
        known = self._begun.get(producer_id)
        return known is not None and known.guard == guard

    def of(self, producer_id: int) -> Verification | None:
        """Return what is known of a producer that is about to begin a transaction."""
        return self._begun.get(producer_id)

    def end(self, producer_id: int) -> None:
        """Something of a transaction of this producer was written: its first records, or its marker."""
        self._begun.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the questions after which nothing was written for so long. `now_ms` is the wall clock."""
        for producer_id in [each for each, begun in self._begun.items() if now_ms - begun.begun_ms >= expiration_ms]:
            del self._begun[producer_id]
