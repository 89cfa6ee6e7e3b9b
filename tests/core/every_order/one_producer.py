"""One transactional producer with two partitions: what must hold in all orders of its messages,
which states are the same, and which moves need no other order.

Source: KIP-98, KIP-360, KIP-890; KAFKA-10080, 16352, 17754, 19999, 20090.
"""

from collections.abc import Hashable
from itertools import pairwise

from kraftsim.clients.rules_transaction_steps import (
    AddPartitions,
    ProducerState,
    TransactionOutcome,
)
from kraftsim.core.decision import Refusal
from kraftsim.transactions.rules_state import (
    AT_REST,
    COMPLETED,
    ONGOING,
    PREPARED,
    may_enter,
)
from tests.core.every_order.canonical import canonical, plain
from tests.core.every_order.transaction_exchange import (
    BROKER_OF,
    CLIENT_MOVES,
    FAULTS,
    PARTITION_AT,
    TRANSACTIONAL_ID,
    A,
    B,
    Partition,
    TransactionExchange,
)


class OneProducer(TransactionExchange):
    """See search.SettlingWorld."""

    def make(self, move: str) -> None:
        """See search.World."""
        super().make(move)
        self._check()

    def is_fault(self, move: str) -> bool:
        """See search.SettlingWorld."""
        return move.startswith(FAULTS)

    # What must hold
    # ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        for before, after in pairwise(self.log):
            assert may_enter(after.state, before.state), (
                f"{after.state.label} after {before.state.label}"
            )
            same_id = after.producer_id == before.producer_id
            assert not same_id or after.producer_epoch >= before.producer_epoch, (
                "an epoch decreased"
            )
            if before.state in PREPARED:
                assert after.state is COMPLETED[before.state], (
                    f"{before.state.label} became {after.state.label}"
                )
        self._check_records()
        self._check_timeout()

    def _check_records(self) -> None:
        """Each record is in a log once; a transaction has one result, that which the client was
        answered with; a marker ends one transaction.
        """
        verdicts: dict[int, bool] = {}
        for name, partition in self.partitions.items():
            seen: set[int] = set()
            open_now: int | None = None
            for entry in partition.log:
                if entry.commits is None:
                    assert entry.transaction not in seen, (
                        f"{name} has a record of transaction {entry.transaction} twice"
                    )
                    seen.add(entry.transaction)
                    assert open_now is None, (
                        f"{name} has transactions {open_now} and {entry.transaction} in one"
                    )
                    open_now = entry.transaction
                elif open_now is not None:
                    verdict = verdicts.setdefault(open_now, entry.commits)
                    assert verdict is entry.commits, (
                        f"transaction {open_now} is committed in one partition, aborted in another"
                    )
                    open_now = None
        for number, outcome in enumerate(self.outcomes, 1):
            if outcome is not TransactionOutcome.UNKNOWN and number in verdicts:
                assert verdicts[number] is (outcome is TransactionOutcome.COMMITTED), (
                    f"the client has the answer that transaction {number} is {outcome.value}"
                )

    def _check_timeout(self) -> None:
        """An open transaction can be aborted when it times out."""
        now = self._now
        if now.entry.facts.state is not ONGOING or now.entry.pending is not None:
            return
        copy = type(now.entry)(TRANSACTIONAL_ID, now.entry.facts)
        copy.has_failed_epoch_fence = now.entry.has_failed_epoch_fence
        facts = self._rules.decide_forced_abort(copy, self._version, 0)
        assert not isinstance(facts, Refusal), (
            f"the transaction of epoch {now.entry.facts.producer_epoch} can never be aborted: "
            f"{facts.error.name}"
        )

    def is_settled(self) -> bool:
        """See search.World: the application is done, and nothing is left open or undone."""
        now = self._now
        if not self._is_client_done() or now.entry.pending is not None:
            return False
        if now.entry.facts.state is ONGOING:
            return True  # until it times out, which `_check_timeout` shows to be possible
        has_open = any(each.state.has_transactions for each in self.partitions.values())
        return now.entry.facts.state in AT_REST and not has_open and self._committed_are_complete()

    def _committed_are_complete(self) -> bool:
        """Whether each transaction that the client saw committed is so, everywhere."""
        committed = {
            number
            for number, outcome in enumerate(self.outcomes, 1)
            if outcome is TransactionOutcome.COMMITTED
        }
        for name in self._written_to:
            partition = self.partitions[name]
            open_now, found = 0, set()
            for entry in partition.log:
                if entry.commits is None:
                    open_now = entry.transaction
                elif open_now and entry.commits:
                    found.add(open_now)
                    open_now = 0
                else:
                    open_now = 0
            if not committed <= found:
                return False
        return True

    # The state, and which moves need no other order
    # ----------------------------------------------------------------------------------------------

    def state(self) -> Hashable:
        """See search.World: the same for states that differ by the names of the partitions."""
        first, second = (plain(self._inside(each)) for each in self.partitions.values())
        as_is, exchanged = {A: "0", B: "1"}, {A: "1", B: "0"}
        if repr(first) == repr(second):
            return min(self._state(as_is, first, second), self._state(exchanged, second, first))
        if repr(first) < repr(second):
            return self._state(as_is, first, second)
        return self._state(exchanged, second, first)

    def _state(self, names: dict[str, str], *inside: Hashable) -> bytes:
        now = self._now
        replaced: dict[object, object] = dict(names.items())
        replaced |= {BROKER_OF[name]: f"broker {new}" for name, new in names.items()}
        return canonical(
            (
                inside,
                [(each.state, each.producer_id, each.producer_epoch) for each in self.log[-1:]],
                (now.epoch, now.entry, now.queue, now.written),
                (now.asked, now.answered, now.taken, now.retries),
                self._late_markers,
                (self._request, self._reply, self._is_awaited),
                self._late_requests,
                (self._begun, self.outcomes, self._has_failed, self._forced > 0),
                list(self._left.values()),
                self._next_producer_id,
                self._client,
            ),
            replaced,
        )

    def sufficient(self, moves: list[str]) -> list[str]:
        """See search.SettlingWorld: all moves of the client, or of one partition, if no other node
        can send it anything before.
        """
        if self._is_client_apart():
            own = [move for move in moves if move.startswith(CLIENT_MOVES)]
            if own:
                return own
        for name in self.partitions:
            if self._is_apart(name):
                own = [move for move in moves if self._is_at(name, move)]
                if own:
                    return own
        return moves

    def _is_client_apart(self) -> bool:
        """Whether all that is on its way to the client has arrived, and cannot be lost."""
        live = [
            each
            for partition in self.partitions.values()
            for each in partition.attempts
            if each.request_id is not None
        ]
        if any(each.stage != "answered" for each in live):
            return False
        if self._is_awaited and self._reply is None:
            return False
        return not (
            (live and self._may_lose("produce")) or (self._is_awaited and self._may_lose("request"))
        )

    def _is_apart(self, name: str) -> bool:
        """Whether a partition gets nothing from the client or the coordinator before its next move.

        The client sends it nothing while a batch is unanswered, or once all is done; the
        coordinator has one request with markers in flight, or no reason to write any.
        """
        attempts = self.partitions[name].attempts
        if (
            self._left["fail over"]
            or self._may_lose("produce")
            or self._may_lose("markers")
            or any(each.stage in ("asking", "storing") for each in attempts)
        ):
            return False
        is_silent = (
            any(
                each.request_id is not None and each.stage in ("sent", "verified")
                for each in attempts
            )
            or self._is_client_done()
        )
        return is_silent and (BROKER_OF[name] in self._now.asked or not self._may_send_markers())

    def _may_send_markers(self) -> bool:
        now = self._now
        requests = [*self._late_requests, *([self._request] if self._request else [])]
        return (
            self._left["time out"] > 0
            or now.entry.facts.state in PREPARED
            or any(facts.state in PREPARED for facts, _ in now.written)
            or any(not isinstance(each.question, AddPartitions) for each in requests)
        )

    def _is_client_done(self) -> bool:
        has_sent = self._is_awaited or any(
            each.request_id is not None
            for partition in self.partitions.values()
            for each in partition.attempts
        )
        return not has_sent and (
            self._has_failed
            or (self._client.state is ProducerState.READY and self._begun == self._transactions)
        )

    def _is_at(self, name: str, move: str) -> bool:
        match move.split(" "):
            case ["mark", broker_id]:
                return PARTITION_AT[int(broker_id)] == name
            case ["late", "marker", index]:
                return PARTITION_AT[self._late_markers[int(index)][0]] == name
            case ["late", "produce", where, _] | ["produce" | "append", where, _]:
                return where == name
        return False

    def _inside(self, partition: Partition) -> object:
        attempts = [
            (
                each.sent,
                each.request_id is not None,
                each.adds,
                each.stage,
                each.error,
                each.offset if each.stage == "answered" else -1,
                each.guard is not None
                and partition.state._verifications.holds(each.sent.producer_id, each.guard),
            )
            for each in partition.attempts
        ]
        begun = [
            (producer_id, each.adds, each.producer_epoch, each.lowest_sequence)
            for producer_id, each in sorted(partition.state._verifications._begun.items())
        ]
        return (
            [(entry.transaction, entry.commits) for entry in partition.log],
            sorted(attempts),
            begun,
            partition.state._entries,
        )
