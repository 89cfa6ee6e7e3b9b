"""Replicas of one partition without a node: late, lost and reordered messages, brokers that crash
and restart, and a controller that elects leaders.

It is the smallest driver around the replication rules, so that thousands of histories run in
seconds. The controller is a few lines: it fences dead brokers, elects from the ISR, and accepts a
leader's ISR change if its epochs match (KIP-497, KIP-903).
"""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.partitions.rules_append import ALL_REPLICAS, AppendDecision, AppendRules
from kraftsim.partitions.rules_follower import (
    Accept,
    Diverging,
    FetchWish,
    OffsetAnswer,
    OffsetWish,
    ReadBounds,
    RestartAt,
    TruncateTo,
)
from kraftsim.partitions.rules_leader import After, IsrProposal, LeaderAndIsrState, LeaderRules
from kraftsim.partitions.rules_log import LeaderEpochs
from kraftsim.partitions.rules_reading import decide_list_offset, decide_read
from kraftsim.partitions.rules_replica import AgreedIsr, PartitionReplica
from kraftsim.producer_state.rules_entries import ProducerStatePolicy
from kraftsim.producer_state.rules_manager import ProducerStateManager
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from protocol.records.batches import RecordBatch
from tests.core.batches import make_batch

NO_LEADER = -1
LAG_MAX_MS = 400
STEP_MS = 10
LATEST_LIST_OFFSETS = 9
SETTLE_STEPS = 3000
"""Clients continue to append, so a follower that is hundreds of batches behind needs this long.

Most histories need a few steps.
"""


@dataclass(slots=True)
class Broker:
    """A broker with its log; `epochs` and `log` survive a crash, the rest does not."""

    number: int
    epoch: int
    log: list[RecordBatch] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    checkpoint: int = 0
    is_alive: bool = True
    silent_until_ms: int = 0
    """No fetch before this time."""
    replica: PartitionReplica | None = None
    seen: tuple[int, int] = (-1, -1)
    """(leader epoch, partition epoch) of the latest metadata that it applied."""


@dataclass(slots=True, kw_only=True)
class Registered:
    """The partition in the metadata."""

    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    isr: tuple[int, ...] = ()


class ReplicationHarness:
    """Drive it with `step`; `check` raises AssertionError as soon as a guarantee is violated."""

    def __init__(
        self,
        seed: int,
        *,
        brokers: int = 3,
        min_in_sync: int = 1,
        replica_class: type[PartitionReplica] = PartitionReplica,
    ) -> None:
        self.random = Random(seed)
        self.now_ms = 1_000_000
        self.min_in_sync = min_in_sync
        self._class = replica_class
        self._next_epoch = 100
        self.brokers = {
            number: Broker(number, self._broker_epoch()) for number in range(1, brokers + 1)
        }
        self.metadata = Registered(leader=1, isr=tuple(self.brokers))
        self.acknowledged: dict[int, int] = {}
        """Checksum of every batch acknowledged to a client -> its offset."""
        self._waiting: list[tuple[int, int, int, int]] = []
        """(broker, leader epoch, required offset, checksum) of appends that wait for
        replication.
        """
        self._mail: list[tuple[int, int, object]] = []
        self._sent = 0
        self._value = 0
        self.emitted: list[Event] = []
        self.elections = self.truncations = self.shrinks = self.expansions = 0
        for broker in self.brokers.values():
            self._start(broker)

    # Execution
    # ----------------------------------------------------------------------------------------------

    def run(self, steps: int, *, trouble: float = 0.05) -> None:
        """Run random events, then heal, and check that every replica is in sync with the same
        log.
        """
        for _ in range(steps):
            self.step(trouble)
        for broker in self.brokers.values():
            if not broker.is_alive:
                self._restart(broker)
        for _ in range(SETTLE_STEPS):
            self.step(0.0)
            if self._is_settled():
                return
        raise AssertionError(
            f"not settled: {self.metadata}, ends "
            f"{[self._replica(each).log_end_offset for each in self.brokers.values()]}"
        )

    def step(self, trouble: float) -> None:
        """Advance the time, deliver due messages, and make a random event happen."""
        self.now_ms += STEP_MS
        due = [each for each in self._mail if each[0] <= self.now_ms]
        self._mail = [each for each in self._mail if each[0] > self.now_ms]
        for _, _, action in sorted(due, key=lambda each: (each[0], each[1])):
            assert callable(action)
            action()
        random = self.random
        if random.random() < 0.5:
            self._produce(random.choice(list(self.brokers.values())))
        for broker in self.brokers.values():
            if broker.is_alive and broker.silent_until_ms <= self.now_ms and random.random() < 0.6:
                self._ask_leader(broker)
            if broker.is_alive and random.random() < 0.05:
                self._ask_controller(broker, self._replica(broker).shrinking(self.now_ms))
            if random.random() < 0.05:
                broker.checkpoint = (
                    self._replica(broker).high_watermark if broker.is_alive else broker.checkpoint
                )
        if random.random() < trouble:
            self._trouble()
        self.check()

    def _trouble(self) -> None:
        broker = self.random.choice(list(self.brokers.values()))
        if not broker.is_alive:
            self._restart(broker)
        elif self.random.random() < 0.4:
            self._die(broker)
        elif self.random.random() < 0.4:
            broker.silent_until_ms = self.now_ms + self.random.randint(1, 4) * LAG_MAX_MS
        else:
            self._elect(preferred=self.random.choice(list(self.metadata.isr)))

    # Clients
    # ----------------------------------------------------------------------------------------------

    def _produce(self, broker: Broker) -> None:
        replica = self._replica(broker)
        if not broker.is_alive or not replica.is_leader:
            return
        self._value += 1
        batch = make_batch(
            -1, self.random.randint(-1, 1), producer_id=-1, epoch=-1, timestamp=self._value
        )
        decision = replica.decide_append(batch, ALL_REPLICAS, self.now_ms)
        if isinstance(decision, AppendDecision):
            written = RecordBatch(b"".join(decision.chunks))
            broker.log.append(written)
            replica.apply_append(decision)
            replica.advance_alone(self.now_ms)
            self._waiting.append(
                (broker.number, replica.leader_epoch, replica.log_end_offset, written.crc)
            )
            self._answer_clients()

    def _answer_clients(self) -> None:
        still = []
        for number, leader_epoch, required, crc in self._waiting:
            broker = self.brokers[number]
            replica = self._replica(broker)
            if not broker.is_alive or replica.leader_epoch != leader_epoch:
                continue
            outcome = replica.replicated(required)
            if outcome is None:
                still.append((number, leader_epoch, required, crc))
            elif outcome is ErrorCode.NONE:
                self.acknowledged[crc] = required - 1
        self._waiting = still

    # Replication
    # ----------------------------------------------------------------------------------------------

    def _ask_leader(self, broker: Broker) -> None:
        following = self._replica(broker).following
        wish = None if following is None else following.wish()
        if following is None or wish is None or following.leader_id not in self.brokers:
            return
        leader, follower_epoch = self.brokers[following.leader_id], broker.epoch
        self._post(
            lambda: self._serve(leader, broker, follower_epoch, wish, following.leader_epoch)
        )

    def _serve(
        self,
        leader: Broker,
        requester: Broker,
        follower_epoch: int,
        wish: FetchWish | OffsetWish,
        leader_epoch: int,
    ) -> None:
        if not leader.is_alive:
            return
        replica = self._replica(leader)
        if isinstance(wish, OffsetWish):
            timestamp = LATEST_TIMESTAMP if wish is OffsetWish.LATEST else EARLIEST_TIMESTAMP
            found = decide_list_offset(
                replica,
                timestamp,
                api_version=LATEST_LIST_OFFSETS,
                current_leader_epoch=leader_epoch,
                is_follower=True,
            )
            error, offset = (
                (found.error, -1)
                if isinstance(found, Refusal)
                else (ErrorCode.NONE, found.offset if isinstance(found, OffsetAnswer) else -1)
            )
            self._post(lambda: self._learn_offset(requester, follower_epoch, wish, error, offset))
            return
        refusal = replica.refuse_follower(requester.number, wish.leader_epoch)
        bounds = refusal or decide_read(
            replica,
            wish.fetch_offset,
            current_leader_epoch=wish.leader_epoch,
            last_fetched_epoch=wish.last_fetched_epoch,
            is_follower=True,
        )
        records: list[RecordBatch] = []
        if isinstance(bounds, ReadBounds):
            records = [batch for batch in leader.log if batch.last_offset >= wish.fetch_offset][
                : self.random.randint(1, 4)
            ]
            fetched = replica.on_follower_fetch(
                requester.number,
                wish.fetch_offset,
                wish.log_start_offset,
                now_ms=self.now_ms,
                broker_epoch=follower_epoch,
            )
            self._ask_controller(leader, fetched.proposal)
            self._answer_clients()
        self._post(lambda: self._copy(requester, follower_epoch, wish, bounds, records))

    def _copy(
        self,
        broker: Broker,
        epoch: int,
        wish: FetchWish,
        bounds: ReadBounds | Diverging | Refusal,
        records: list[RecordBatch],
    ) -> None:
        following = self._replica(broker).following
        if not broker.is_alive or broker.epoch != epoch or following is None:
            return
        replica = self._replica(broker)
        match bounds:
            case Refusal():
                step = following.on_fetched(wish, error=bounds.error)
            case Diverging():
                step = following.on_fetched(wish, error=ErrorCode.NONE, diverging=bounds)
            case ReadBounds():
                step = following.on_fetched(
                    wish,
                    error=ErrorCode.NONE,
                    high_watermark=bounds.high_watermark,
                    log_start_offset=bounds.log_start_offset,
                )
        if isinstance(step, Accept):
            for batch in records:
                if batch.partition_leader_epoch > (
                    -1 if replica.epochs.latest_epoch is None else replica.epochs.latest_epoch
                ):
                    replica.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
                broker.log.append(batch)
                self._replicated(broker, batch)
            replica.on_replicated(step.high_watermark)
        else:
            self._truncate(broker, step)

    def _learn_offset(
        self, broker: Broker, epoch: int, wish: OffsetWish, error: ErrorCode, offset: int
    ) -> None:
        following = self._replica(broker).following
        if broker.is_alive and broker.epoch == epoch and following is not None:
            self._truncate(broker, following.on_offset(wish, error=error, offset=offset))

    def _truncate(self, broker: Broker, step: object) -> None:
        if not isinstance(step, TruncateTo | RestartAt):
            return
        replica = self._replica(broker)
        self.truncations += step.offset < replica.log_end_offset
        broker.log = (
            [batch for batch in broker.log if batch.last_offset < step.offset]
            if isinstance(step, TruncateTo)
            else []
        )
        end_offset = (
            broker.log[-1].last_offset + 1
            if broker.log
            else (step.offset if isinstance(step, RestartAt) else 0)
        )
        replica.epochs.truncate_to(end_offset)
        replica.on_truncated(step.offset if isinstance(step, RestartAt) else 0, end_offset)
        self._rebuilt(broker)

    def _replicated(self, broker: Broker, batch: RecordBatch) -> None:
        """A replicated batch was appended."""
        self._replica(broker).append_replicated(batch)

    def _rebuilt(self, broker: Broker) -> None:
        """A log was truncated."""

    def _state_of(self, broker: Broker) -> ProducerStateManager:
        """Return the producer state of a starting broker."""
        return ProducerStateManager(ProducerStatePolicy(verifies_transactions=False))

    # The controller
    # ----------------------------------------------------------------------------------------------

    def _ask_controller(self, broker: Broker, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            epoch = broker.epoch
            self._post(lambda: self._evaluate(broker, epoch, proposal), may_be_lost=False)

    def _evaluate(self, broker: Broker, epoch: int, proposal: IsrProposal) -> None:
        answer: AgreedIsr | ErrorCode
        if broker.epoch != epoch or not broker.is_alive:
            return
        known = self.metadata
        epochs = [self.brokers[each].epoch for each in proposal.isr]
        asked = [
            broker.epoch if each == broker.number else given
            for each, given in zip(proposal.isr, proposal.broker_epochs, strict=True)
        ]
        if proposal.leader_epoch != known.leader_epoch:
            answer = ErrorCode.FENCED_LEADER_EPOCH
        elif proposal.partition_epoch != known.partition_epoch:
            answer = ErrorCode.INVALID_UPDATE_VERSION
        elif not all(self.brokers[each].is_alive for each in proposal.isr) or asked != epochs:
            answer = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.expansions += len(proposal.isr) > len(known.isr)
            self.shrinks += len(proposal.isr) < len(known.isr)
            known.isr, known.partition_epoch = proposal.isr, known.partition_epoch + 1
            answer = AgreedIsr(known.leader_epoch, known.partition_epoch, known.isr)
            self._publish()
        self._post(
            lambda: self._receive_isr_answer(broker, epoch, proposal, answer), may_be_lost=False
        )

    def _receive_isr_answer(
        self, broker: Broker, epoch: int, proposal: IsrProposal, answer: AgreedIsr | ErrorCode
    ) -> None:
        if broker.is_alive and broker.epoch == epoch:
            after = self._replica(broker).on_isr_answer(proposal, answer, self.now_ms)
            assert after is not After.RETRY
            self._answer_clients()

    def _elect(self, preferred: int | None = None) -> None:
        known = self.metadata
        alive = [each for each in known.isr if self.brokers[each].is_alive]
        leader = preferred if preferred in alive else next(iter(alive), NO_LEADER)
        if leader != known.leader or preferred is not None:
            known.leader, known.leader_epoch, known.partition_epoch = (
                leader,
                known.leader_epoch + 1,
                known.partition_epoch + 1,
            )
            self.elections += 1
            self._publish()
            self._leader_has_what_was_promised()

    def _die(self, broker: Broker) -> None:
        broker.is_alive = False
        broker.replica = None
        known = self.metadata
        if len(known.isr) > 1 and broker.number in known.isr:
            known.isr, known.partition_epoch = (
                tuple(each for each in known.isr if each != broker.number),
                known.partition_epoch + 1,
            )
            self._publish()
        if known.leader == broker.number:
            self._elect()

    def _restart(self, broker: Broker) -> None:
        broker.is_alive, broker.epoch, broker.seen = True, self._broker_epoch(), (-1, -1)
        self._start(broker)
        if self.metadata.leader == NO_LEADER:
            self._elect()

    def _start(self, broker: Broker) -> None:
        end_offset = broker.log[-1].last_offset + 1 if broker.log else 0
        broker.replica = self._class(
            topic="lines",
            partition=0,
            replica_id=broker.number,
            log_start_offset=0,
            log_end_offset=end_offset,
            epochs=broker.epochs,
            producer_state=self._state_of(broker),
            rules=AppendRules(min_in_sync_replicas=self.min_in_sync),
            emit=self.emitted.append,
            high_watermark=broker.checkpoint,
        )
        self._inform(broker)

    def _publish(self) -> None:
        for broker in self.brokers.values():
            self._inform(broker)

    def _inform(self, broker: Broker) -> None:
        known = self.metadata
        registered = Registered(
            leader=known.leader,
            leader_epoch=known.leader_epoch,
            partition_epoch=known.partition_epoch,
            isr=known.isr,
        )
        epoch = broker.epoch
        self._post(lambda: self._follow_metadata(broker, epoch, registered), may_be_lost=False)

    def _follow_metadata(self, broker: Broker, epoch: int, registered: Registered) -> None:
        if (
            not broker.is_alive
            or broker.epoch != epoch
            or (registered.leader_epoch, registered.partition_epoch) <= broker.seen
        ):
            return
        broker.seen = (registered.leader_epoch, registered.partition_epoch)
        replica = self._replica(broker)
        if registered.leader != broker.number:
            following = replica.follow(registered.leader, registered.leader_epoch)
            step = None if following is None else following.begin()
            self._truncate(broker, step)
        else:
            leader_and_isr = LeaderAndIsrState(
                leader_epoch=registered.leader_epoch,
                partition_epoch=registered.partition_epoch,
                replicas=tuple(self.brokers),
                isr=registered.isr,
            )
            rules = LeaderRules(lag_max_ms=LAG_MAX_MS, min_in_sync=self.min_in_sync)
            replica.lead(
                leader_and_isr, now_ms=self.now_ms, rules=rules, eligible=self._is_eligible
            )
        self._answer_clients()

    def _is_eligible(self, number: int, broker_epoch: int) -> bool:
        return self.brokers[number].is_alive and self.brokers[number].epoch == broker_epoch

    # Checks
    # ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Below the high watermarks of two replicas their logs are identical."""
        replicas = [broker for broker in self.brokers.values() if broker.is_alive]
        for one, other in pairwise(replicas):
            end = min(self._replica(one).high_watermark, self._replica(other).high_watermark)
            assert self._below(one, end) == self._below(other, end), (
                f"{one.number} and {other.number} differ below {end}"
            )

    def _leader_has_what_was_promised(self) -> None:
        if self.metadata.leader == NO_LEADER:
            return
        have = {batch.crc for batch in self.brokers[self.metadata.leader].log}
        lost = [offset for crc, offset in self.acknowledged.items() if crc not in have]
        assert not lost, (
            f"broker {self.metadata.leader} was elected in epoch {self.metadata.leader_epoch} "
            f"without offsets {lost[:5]}"
        )

    def _below(self, broker: Broker, end: int) -> list[tuple[int, int]]:
        return [(batch.base_offset, batch.crc) for batch in broker.log if batch.base_offset < end]

    def _is_settled(self) -> bool:
        if len(self.metadata.isr) < len(self.brokers):
            return False
        logs = {tuple(self._below(broker, 1 << 60)) for broker in self.brokers.values()}
        return len(logs) == 1 and set(self.acknowledged) <= {
            batch.crc for batch in self.brokers[1].log
        }

    # Messages
    # ----------------------------------------------------------------------------------------------

    def _post(self, action: object, *, may_be_lost: bool = True) -> None:
        if may_be_lost and self.random.random() < 0.05:
            return
        self._sent += 1
        self._mail.append(
            (self.now_ms + self.random.choice((5, 10, 20, 40, 200)), self._sent, action)
        )

    def _replica(self, broker: Broker) -> PartitionReplica:
        if broker.replica is None:
            return _NO_LEADER
        return broker.replica

    def _broker_epoch(self) -> int:
        self._next_epoch += 1
        return self._next_epoch


_NO_LEADER = PartitionReplica(
    topic="lines",
    partition=0,
    replica_id=0,
    log_start_offset=0,
    log_end_offset=0,
    epochs=LeaderEpochs(),
    producer_state=ProducerStateManager(ProducerStatePolicy()),
    rules=AppendRules(),
    emit=lambda event: None,
)
