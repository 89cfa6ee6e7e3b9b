"""kraftsim's transactional producer: executes the decisions of `TransactionalProducer`, and emits
the application's calls and their results.

Source: org.apache.kafka.clients.producer.KafkaProducer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from kraftsim.clients.cluster_connections import (
    Address,
    ClientIdentity,
    ClusterConnections,
    find_coordinator,
)
from kraftsim.clients.events import (
    ClientInitialized,
    ClientStarted,
    ClientStopped,
    RecordFailed,
    RecordSent,
)
from kraftsim.clients.events_transactions import (
    InitProducerIdSent,
    TransactionalIdTaken,
    TransactionBegun,
    TransactionEndAsked,
    TransactionEnded,
    TransactionErred,
    TransactionOffsetAccepted,
    TransactionOffsetSent,
)
from kraftsim.clients.producer import LIBRARY, ProduceOutbox, emit_delivered, leaders_of
from kraftsim.clients.producer_requests import (
    answered,
    api_of,
    is_of_two_phase_commit,
    last_version,
    request_of,
    takes_member,
    without_member,
)
from kraftsim.clients.rules_producer_steps import (
    IdentityTaken,
    OutgoingRecord,
    ProducerIdentity,
    RecordDelivered,
    RecordGiven,
    RecordGivenUp,
    SendMetadataRequest,
    SendProduce,
    TimePassed,
    TopicPartition,
)
from kraftsim.clients.rules_transaction_steps import (
    AbortAsked,
    Answered,
    BeginAsked,
    CommitAsked,
    CommitOffsets,
    CoordinatorFound,
    CoordinatorKind,
    CoordinatorLost,
    FindCoordinator,
    GroupIdentity,
    IdTaken,
    InitAsked,
    InitProducerId,
    OffsetsAccepted,
    OffsetsGiven,
    ProducerErred,
    ProducerState,
    QuestionLost,
    SendQuestion,
    TransactionalEffect,
    TransactionalInput,
    TransactionalSettings,
    TransactionSettled,
)
from kraftsim.clients.rules_transactional_producer import TransactionalProducer
from kraftsim.clients.step_loop import StepLoop
from kraftsim.server.tasks import NodeTasks
from kraftsim.world.interface import World
from protocol.errors import ErrorCode

TRANSACTION_VERSION = "transaction.version"


class AbortNeeded(RuntimeError):
    """The transaction failed with `error_code`; the application must call `abort`."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(f"the transaction must be aborted: {error_code.name}")
        self.error_code = error_code


class ProducerFailed(RuntimeError):
    """The producer failed with a fatal error, such as fencing, which is `error_code`."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(f"the producer can only be closed: {error_code.name}")
        self.error_code = error_code


class TransactionalClient:
    """A producer with a transactional id: `init`, then `begin`, `send`, `send_offsets` and `commit`
    or `abort`, repeatedly, then `close`.

    Every method waits without limit, and raises AbortNeeded or ProducerFailed. `client_id` must be
    unique in a run: it is part of the names of transactions. With `names_member` False offsets are
    committed as by pre-KIP-447 clients, which do not support transaction.version 2 either.
    """

    def __init__(
        self,
        world: World,
        *,
        bootstrap: Sequence[Address],
        client_id: str,
        settings: TransactionalSettings,
        frame_events: bool = False,
        names_member: bool = True,
        rules: type[TransactionalProducer] = TransactionalProducer,
    ) -> None:
        self.client_id = client_id
        self._world = world
        self._settings = settings if names_member else replace(settings, uses_implicit_adding=False)
        self._names_member = names_member
        self._rules = rules(self._settings)
        self._transaction_count = 0
        request_timeout_ms = settings.producer.request_timeout_ms
        identity = ClientIdentity(
            client_id=client_id,
            bootstrap=tuple(bootstrap),
            request_timeout_ms=request_timeout_ms,
            frame_events=frame_events,
        )
        self.connections = ClusterConnections(world, identity)
        self._loop: StepLoop[TransactionalInput, TransactionalEffect] = StepLoop(
            world, self._rules, self._carry_out, TimePassed()
        )
        self._tasks = NodeTasks(self._loop.fail)
        self._outbox = ProduceOutbox(
            self.connections,
            self._tasks,
            client_id=client_id,
            timeout_ms=request_timeout_ms,
            settle=self._loop.take,
            fail=self._loop.fail,
            transactional_id=settings.transactional_id,
        )

    @property
    def transaction(self) -> str:
        """The name of the current transaction, or of the last one."""
        return f"{self.client_id}/{self._transaction_count}"

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction is open, or must be aborted."""
        return self._rules.state in (ProducerState.IN_TRANSACTION, ProducerState.ABORTABLE_ERROR)

    @property
    def next_identity(self) -> ProducerIdentity:
        """The producer id with the next epoch, which has not been assigned yet."""
        identity = self._rules.identity
        assert identity is not None, "init was called before"
        return ProducerIdentity(identity.producer_id, identity.producer_epoch + 1)

    async def init(self) -> None:
        """Initialize the transactional id: fences the previous producer, and aborts its open
        transaction.
        """
        self._world.emit(ClientStarted(client_id=self.client_id, library=LIBRARY))
        self._loop.take(InitAsked())
        await self._until_ready()

    async def begin(self) -> None:
        """Begin a transaction."""
        await self._until_ready()
        self._loop.take(BeginAsked())
        identity = self._rules.identity
        assert identity is not None, "a producer that is ready has an identity"
        self._transaction_count += 1
        self._world.emit(
            TransactionBegun(
                client_id=self.client_id,
                transactional_id=self._settings.transactional_id,
                transaction=self.transaction,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
            )
        )

    async def send(self, topic: str, partition: int, key: str, value: bytes) -> None:
        """Send a record; waits only while the buffer is full."""
        while (
            self._rules.record_count >= self._settings.producer.buffered_records_max
            and self._rules.state is ProducerState.IN_TRANSACTION
        ):
            await self._loop.change()
        self._require_no_error()
        self._world.emit(
            RecordSent(
                client_id=self.client_id,
                topic=topic,
                partition=partition,
                record_key=key,
                transaction=self.transaction,
            )
        )
        where = TopicPartition(topic, partition)
        self._loop.take(
            RecordGiven(
                OutgoingRecord(
                    where=where, key=key, value=value, timestamp_ms=self._world.clock.wall_ms()
                )
            )
        )

    async def send_offsets(
        self, group: GroupIdentity, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Commit a group's offsets in the transaction; returns when the group coordinator has
        stored them.
        """
        self._require_no_error()
        identity = self._rules.identity
        assert identity is not None, "a transaction has an identity"
        for where, offset in offsets.items():
            self._world.emit(
                TransactionOffsetSent(
                    client_id=self.client_id,
                    transaction=self.transaction,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.producer_epoch,
                    group_id=group.group_id,
                    generation_id=group.generation_id if self._names_member else -1,
                    topic=where.topic,
                    partition=where.partition,
                    offset=offset,
                )
            )
        self._loop.take(OffsetsGiven(group=group, offsets=offsets))
        while self._rules.has_offsets_to_send and self._rules.state is ProducerState.IN_TRANSACTION:
            await self._loop.change()
        self._require_no_error()

    async def commit(self) -> None:
        """Commit.

        Raises AbortNeeded if the transaction must be aborted; EndTxn has not been sent then.
        """
        self._require_no_error()
        self._emit_end_asked(is_commit=True)
        self._loop.take(CommitAsked())
        while self._rules.state is ProducerState.COMMITTING:
            await self._loop.change()
        self._require_no_error()

    async def abort(self) -> None:
        """Abort."""
        if self._rules.state is ProducerState.FATAL_ERROR:
            raise ProducerFailed(self._rules.error_code)
        self._emit_end_asked(is_commit=False)
        self._loop.take(AbortAsked())
        await self._until_ready()

    async def close(self) -> None:
        """Stop the client; an open transaction is aborted by its timeout."""
        if self._loop.is_over:
            return
        if self._rules.state in (
            ProducerState.IN_TRANSACTION,
            ProducerState.PREPARED,
            ProducerState.COMMITTING,
            ProducerState.ABORTING,
            ProducerState.ABORTABLE_ERROR,
        ):
            self._emit_ended("unknown", ErrorCode.NONE)
        self._loop.end()
        self._outbox.is_closed = True
        self._world.emit(
            ClientStopped(
                client_id=self.client_id,
                reason="closed" if self._loop.failure is None else "failed",
            )
        )
        self.connections.close()
        await self._tasks.join()
        self._world.flush_events()

    def freeze(self) -> None:
        """Pause the client: see `StepLoop.freeze`."""
        self._loop.freeze()

    def thaw(self) -> None:
        """Resume."""
        self._loop.thaw()

    async def _until_ready(self) -> None:
        while self._rules.state is not ProducerState.READY:
            self._require_no_error()
            await self._loop.change()

    def _require_no_error(self) -> None:
        if self._rules.state is ProducerState.FATAL_ERROR:
            raise ProducerFailed(self._rules.error_code)
        if self._rules.state is ProducerState.ABORTABLE_ERROR:
            raise AbortNeeded(self._rules.error_code)

    # Effects
    # ----------------------------------------------------------------------------------------------

    def _carry_out(self, effect: TransactionalEffect) -> None:
        match effect:
            case FindCoordinator(kind=kind, key=key):
                self._tasks.spawn(
                    self._find(kind, key), f"{self.client_id}-find-{kind.name.lower()}"
                )
            case SendQuestion():
                if isinstance(effect.question, InitProducerId):
                    self._emit_init_sent(effect.question.identity)
                self._tasks.spawn(
                    self._ask(effect), f"{self.client_id}-{type(effect.question).__name__}"
                )
            case SendMetadataRequest(topics):
                self._tasks.spawn(self._ask_metadata(topics), f"{self.client_id}-metadata")
            case SendProduce():
                self._outbox.put(effect, is_implicit=self._rules.is_implicit)
            case _:
                self._emit(effect)

    def _emit(
        self,
        effect: IdentityTaken
        | IdTaken
        | TransactionSettled
        | OffsetsAccepted
        | ProducerErred
        | RecordDelivered
        | RecordGivenUp,
    ) -> None:
        """Emit the events that the application observes."""
        client_id, transactional_id = self.client_id, self._settings.transactional_id
        match effect:
            case IdTaken((producer_id, producer_epoch)):
                self._world.emit(
                    TransactionalIdTaken(
                        client_id=client_id,
                        transactional_id=transactional_id,
                        producer_id=producer_id,
                        producer_epoch=producer_epoch,
                    )
                )
            case IdentityTaken((producer_id, producer_epoch)):
                self._world.emit(
                    ClientInitialized(
                        client_id=client_id, producer_id=producer_id, producer_epoch=producer_epoch
                    )
                )
            case TransactionSettled(outcome=outcome, error_code=error_code):
                self._emit_ended(outcome.value, error_code)
            case OffsetsAccepted(identity=identity, group=group, offsets=offsets):
                for where, offset in offsets:
                    self._world.emit(
                        TransactionOffsetAccepted(
                            client_id=client_id,
                            transaction=self.transaction,
                            producer_id=identity.producer_id,
                            producer_epoch=identity.producer_epoch,
                            group_id=group.group_id,
                            topic=where.topic,
                            partition=where.partition,
                            offset=offset,
                        )
                    )
            case ProducerErred(api=api, error_code=error_code, is_fatal=is_fatal):
                self._world.emit(
                    TransactionErred(
                        client_id=client_id,
                        transactional_id=transactional_id,
                        transaction=self.transaction,
                        api=api.name,
                        error_code=int(error_code),
                        is_fatal=is_fatal,
                    )
                )
            case RecordDelivered():
                emit_delivered(self._world, client_id, effect)
            case RecordGivenUp(record=record, error_code=error_code, reason=reason):
                topic, partition = record.where
                self._world.emit(
                    RecordFailed(
                        client_id=client_id,
                        topic=topic,
                        partition=partition,
                        record_key=record.key,
                        error_code=int(error_code),
                        reason=reason,
                    )
                )
            case _:
                assert_never(effect)

    def _emit_init_sent(self, identity: ProducerIdentity | None) -> None:
        self._world.emit(
            InitProducerIdSent(
                client_id=self.client_id,
                transactional_id=self._settings.transactional_id,
                producer_id=-1 if identity is None else identity.producer_id,
                producer_epoch=-1 if identity is None else identity.producer_epoch,
            )
        )

    def _emit_end_asked(self, *, is_commit: bool) -> None:
        self._world.emit(
            TransactionEndAsked(
                client_id=self.client_id,
                transactional_id=self._settings.transactional_id,
                transaction=self.transaction,
                is_commit=is_commit,
            )
        )

    def _emit_ended(self, outcome: str, error_code: ErrorCode) -> None:
        identity = self._rules.identity
        assert identity is not None, "a transaction has an identity"
        self._world.emit(
            TransactionEnded(
                client_id=self.client_id,
                transactional_id=self._settings.transactional_id,
                transaction=self.transaction,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                outcome=outcome,
                error_code=int(error_code),
            )
        )

    # Requests
    # ----------------------------------------------------------------------------------------------

    async def _find(self, kind: CoordinatorKind, key: str) -> None:
        try:
            found = await find_coordinator(self.connections, kind, key)
            connection = await self.connections.to_broker(found) if isinstance(found, int) else None
        except OSError:
            self._loop.take(CoordinatorLost(kind=kind, error_code=None))
            return
        if connection is None or isinstance(found, ErrorCode):
            self._loop.take(
                CoordinatorLost(
                    kind=kind, error_code=found if isinstance(found, ErrorCode) else None
                )
            )
        else:
            self._loop.take(
                CoordinatorFound(
                    kind=kind,
                    broker_id=found,
                    transaction_version=connection.finalized_level(TRANSACTION_VERSION),
                )
            )

    async def _ask(self, asked: SendQuestion) -> None:
        question = asked.question
        if isinstance(question, CommitOffsets) and not self._names_member:
            question = without_member(question)
        try:
            connection = await self.connections.to_broker(asked.broker_id)
            last = last_version(
                question, is_implicit=asked.is_implicit, names_member=self._names_member
            )
            version = min(connection.version_for(api_of(question)), last)
            if is_of_two_phase_commit(question) and version < last:
                self._loop.take(Answered(error_code=ErrorCode.UNSUPPORTED_VERSION))
                return
            if (
                isinstance(question, CommitOffsets)
                and question.group.member_id
                and not (self._settings.downgrades_commits or takes_member(version))
            ):
                self._loop.take(Answered(error_code=ErrorCode.UNSUPPORTED_VERSION))
                return
            answer = await connection.request(request_of(question, version), api_version=version)
        except OSError:
            self._loop.take(QuestionLost())
            return
        self._loop.take(answered(answer))

    async def _ask_metadata(self, topics: tuple[str, ...]) -> None:
        self._loop.take(await leaders_of(self.connections, topics))
