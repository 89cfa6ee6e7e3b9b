"""The state machine of a transactional producer: the next request, error handling, and completion
of transactions.

It wraps a sender, which is an idempotent producer. One coordinator request is in flight at a time;
the next one follows from the state, so that no queue is needed. With transaction.version 1 a
partition is added before it is written to and the epoch stays; with version 2 brokers add
partitions themselves, and every EndTxn bumps the epoch.
Source: KIP-98, KIP-360, KIP-588, KIP-890,
org.apache.kafka.clients.producer.internals.{TransactionManager, Sender, RecordAccumulator}.
"""

from collections.abc import Callable, Mapping

from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import (
    BatchState,
    FlushAsked,
    IdentityTaken,
    MetadataArrived,
    MetadataLost,
    OutgoingRecord,
    ProduceAnswered,
    ProduceLost,
    ProducerEffect,
    ProducerIdentity,
    ProducerInput,
    ProducerSettings,
    RecordGiven,
    RecordGivenUp,
    SendInitProducerId,
    TimePassed,
    TopicPartition,
)
from kraftsim.clients.rules_transaction_steps import (
    API_OF,
    FATAL_FOR_BATCHES,
    AbortAsked,
    AddOffsets,
    AddPartitions,
    Answered,
    BeginAsked,
    CommitAsked,
    CommitOffsets,
    CoordinatorFound,
    CoordinatorKind,
    CoordinatorLost,
    EndTransaction,
    FindCoordinator,
    GroupIdentity,
    IdTaken,
    InitAsked,
    InitProducerId,
    Meaning,
    OffsetsAccepted,
    OffsetsGiven,
    PrepareAsked,
    ProducerErred,
    ProducerState,
    Question,
    QuestionLost,
    SendQuestion,
    TransactionalEffect,
    TransactionalInput,
    TransactionalSettings,
    TransactionOutcome,
    TransactionSettled,
    meaning_of,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

# --------------------------------------------------------------------------------------------------
# The sender: its identity and partitions are controlled from outside
#
# A lost sequence does not bump the epoch here: the records fail, and so does the transaction.


class GatedProducer(IdempotentProducer):
    """Sends only to partitions for which `may_send_to` is true."""

    def __init__(
        self, settings: ProducerSettings, may_send_to: Callable[[TopicPartition], bool]
    ) -> None:
        super().__init__(settings)
        self._gate = may_send_to

    @property
    def has_lost_sequence(self) -> bool:
        """Whether a used sequence is missing, or may be missing, in some log."""
        return any(queue.has_lost_sequence for queue in self._queues.values())

    @property
    def has_sent(self) -> bool:
        """Whether a sent batch is neither acknowledged nor failed."""
        return any(batch.attempts for queue in self._queues.values() for batch in queue.batches)

    def use(self, identity: ProducerIdentity) -> None:
        """Continue with an identity; partitions with a lost sequence restart with it."""
        for queue in self._queues.values():
            if queue.has_lost_sequence:
                queue.restart_sequences()
        self._identity = identity

    def drop_unsent(self, error_code: ErrorCode) -> list[ProducerEffect]:
        """Fail every record that was never sent."""
        self._effects = []
        for queue in self._queues.values():
            queue.close_open_batch()
            for batch in [each for each in queue.batches if not each.attempts]:
                queue.remove(batch, sequence_is_used=False)
                self._give_up(batch, error_code, "the transaction is aborted")
        effects, self._effects = self._effects, []
        return effects

    def _may_send_to(self, where: TopicPartition) -> bool:
        return self._gate(where)

    def _renew_identities(self) -> None:
        """Fail the refused batches: a new identity comes with the next transaction."""
        for queue in self._queues.values():
            for batch in [each for each in queue.batches if each.state is BatchState.REFUSED]:
                queue.remove(batch, sequence_is_used=False)
                self._give_up(
                    batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "its sequence cannot be used"
                )


# --------------------------------------------------------------------------------------------------
# The producer

IMPLICIT_SINCE = 2
"""The transaction.version since which brokers add partitions themselves and EndTxn bumps the epoch
(KIP-890).
"""
IN_DOUBT = (
    ProducerState.IN_TRANSACTION,
    ProducerState.PREPARED,
    ProducerState.COMMITTING,
    ProducerState.ABORTING,
    ProducerState.ABORTABLE_ERROR,
)


class TransactionalProducer:
    """One producer with one transactional id.

    Call `step` for every input, and again no later than `wake_at_ms`.
    """

    sender_class: type[GatedProducer] = GatedProducer

    def __init__(self, settings: TransactionalSettings) -> None:
        self._settings = settings
        self._sender = self.sender_class(settings.producer, self._may_send_to)
        self.state = ProducerState.UNINITIALISED
        self.error_code = ErrorCode.NONE
        self.identity: ProducerIdentity | None = None
        self.prepared: ProducerIdentity | None = None
        """The identity of a prepared transaction: its own, or that of one that was kept."""
        self.is_implicit = False
        """Whether the current transaction uses transaction.version 2."""
        self._begins_implicit = False
        """Whether the next one will."""
        self._transaction_version = 0
        self._coordinators: dict[CoordinatorKind, int] = {}
        self._finding: CoordinatorKind | None = None
        self._asked: Question | None = None
        self._not_before_ms = 0
        self._new_partitions: dict[TopicPartition, None] = {}
        self._partitions: dict[TopicPartition, None] = {}
        self._group: GroupIdentity | None = None
        self._offsets: dict[TopicPartition, int] = {}
        self._added_groups: dict[str, None] = {}
        self._has_begun_at_coordinator = False
        self._needs_next_epoch = False
        self._effects: list[TransactionalEffect] = []

    @property
    def record_count(self) -> int:
        """The number of records that are neither acknowledged nor failed."""
        return self._sender.record_count

    @property
    def has_offsets_to_send(self) -> bool:
        """Whether offsets wait to be sent to the group coordinator."""
        return bool(self._offsets)

    @property
    def wake_at_ms(self) -> int | None:
        """When TimePassed is due without other inputs; None: never."""
        moments = [self._sender.wake_at_ms]
        if self._asked is None and self._finding is None and self._next_question() is not None:
            moments.append(self._not_before_ms)
        return min((moment for moment in moments if moment is not None), default=None)

    def step(self, happened: TransactionalInput, now_ms: int) -> list[TransactionalEffect]:
        """Handle an input and return the effects, in order."""
        self._effects = []
        match happened:
            case (
                InitAsked()
                | BeginAsked()
                | OffsetsGiven()
                | PrepareAsked()
                | CommitAsked()
                | AbortAsked()
            ):
                self._on_application(happened, now_ms)
            case CoordinatorFound() | CoordinatorLost() | Answered() | QuestionLost():
                self._on_coordinator(happened, now_ms)
            case RecordGiven(record):
                self._give(record, now_ms)
            case (
                FlushAsked()
                | TimePassed()
                | MetadataArrived()
                | MetadataLost()
                | ProduceAnswered()
                | ProduceLost()
            ):
                self._pass_on(happened, now_ms)
        self._go_on(now_ms)
        effects, self._effects = self._effects, []
        return effects

    # Application calls
    # ----------------------------------------------------------------------------------------------

    def _on_application(
        self,
        happened: InitAsked | BeginAsked | OffsetsGiven | PrepareAsked | CommitAsked | AbortAsked,
        now_ms: int,
    ) -> None:
        match happened:
            case InitAsked():
                assert self.state is ProducerState.UNINITIALISED, "a producer is initialised once"
                self.state = ProducerState.INITIALISING
            case BeginAsked():
                assert self.state is ProducerState.READY, (
                    f"no transaction begins while the producer is {self.state.name}"
                )
                self.state = ProducerState.IN_TRANSACTION
                self.is_implicit = self._begins_implicit
            case OffsetsGiven(group=group, offsets=offsets):
                assert self.state is ProducerState.IN_TRANSACTION and not self._offsets, (
                    "offsets are sent in a transaction, one group at a time"
                )
                self._group, self._offsets = group, dict(offsets)
            case PrepareAsked():
                assert self.state is ProducerState.IN_TRANSACTION and not self.record_count, (
                    "a transaction is prepared when all of it is acknowledged"
                )
                self.state, self.prepared = ProducerState.PREPARED, self.identity
            case CommitAsked():
                assert self.state in (ProducerState.IN_TRANSACTION, ProducerState.PREPARED), (
                    f"no commit while the producer is {self.state.name}"
                )
                self.state = ProducerState.COMMITTING
                self._pass_on(FlushAsked(), now_ms)
            case AbortAsked():
                assert self.state in (
                    ProducerState.IN_TRANSACTION,
                    ProducerState.PREPARED,
                    ProducerState.ABORTABLE_ERROR,
                ), f"no abort while {self.state.name}"
                self.state = ProducerState.ABORTING
                self._drop_unsent()
                self._offsets, self._new_partitions = {}, {}

    def _give(self, record: OutgoingRecord, now_ms: int) -> None:
        assert self.state is ProducerState.IN_TRANSACTION, "records are sent within a transaction"
        if record.where not in self._partitions:
            (self._partitions if self.is_implicit else self._new_partitions)[record.where] = None
            self._has_begun_at_coordinator = self._has_begun_at_coordinator or self.is_implicit
        self._pass_on(RecordGiven(record), now_ms)

    def _may_send_to(self, where: TopicPartition) -> bool:
        return where in self._partitions and self.state is not ProducerState.FATAL_ERROR

    # Sender
    # ----------------------------------------------------------------------------------------------

    def _pass_on(self, happened: ProducerInput, now_ms: int) -> None:
        self._take(self._sender.step(happened, now_ms))

    def _take(self, effects: list[ProducerEffect]) -> None:
        for effect in effects:
            assert not isinstance(effect, SendInitProducerId | IdentityTaken), (
                "the identity is set by the coordinator"
            )
            self._effects.append(effect)
            if isinstance(effect, RecordGivenUp):
                self._on_given_up(effect)

    def _on_given_up(self, given_up: RecordGivenUp) -> None:
        """A failed record aborts its transaction.

        INVALID_PRODUCER_EPOCH does too, as only the coordinator can tell that the producer is
        fenced (KIP-588).
        """
        if given_up.error_code in FATAL_FOR_BATCHES:
            self._fail(ApiKey.PRODUCE, given_up.error_code, given_up.reason)
        elif self.state in (ProducerState.IN_TRANSACTION, ProducerState.COMMITTING):
            self._need_abort(ApiKey.PRODUCE, given_up.error_code, given_up.reason)

    def _drop_unsent(self) -> None:
        self._take(self._sender.drop_unsent(ErrorCode.TRANSACTION_ABORTABLE))

    # Coordinators
    # ----------------------------------------------------------------------------------------------

    def _on_coordinator(
        self, happened: CoordinatorFound | CoordinatorLost | Answered | QuestionLost, now_ms: int
    ) -> None:
        match happened:
            case CoordinatorFound(
                kind=kind, broker_id=broker_id, transaction_version=transaction_version
            ):
                self._finding = None
                self._coordinators[kind] = broker_id
                if kind is CoordinatorKind.TRANSACTION:
                    self._transaction_version = transaction_version
            case CoordinatorLost(kind=kind, error_code=error_code):
                self._finding = None
                self._not_before_ms = now_ms + self._settings.producer.retry_backoff_ms
                if error_code is not None and not error_code.retriable:
                    self._fail_by_meaning(kind, error_code)
            case QuestionLost():
                question = self._take_question()
                self._coordinators.pop(_kind_of(question), None)
                self._not_before_ms = now_ms + self._settings.producer.retry_backoff_ms
            case Answered():
                self._answer(self._take_question(), happened, now_ms)

    def _take_question(self) -> Question:
        question, self._asked = self._asked, None
        assert question is not None, "a response without a request"
        return question

    def _answer(self, question: Question, answer: Answered, now_ms: int) -> None:
        error, api = self._decisive(question, answer), API_OF[type(question)]
        meaning = self.meaning_of(question, error)
        if (
            isinstance(question, EndTransaction)
            and self.state is ProducerState.ABORTING
            and meaning is Meaning.ABORT_AND_BUMP
        ):
            self._needs_next_epoch, meaning = True, Meaning.DONE
        match meaning:
            case Meaning.DONE:
                self._done(question, answer, now_ms)
            case Meaning.RETRY:
                self._keep_accepted(question, answer.errors)
                is_busy = (
                    isinstance(question, AddPartitions)
                    and error is ErrorCode.CONCURRENT_TRANSACTIONS
                    and not self._partitions
                )
                self._not_before_ms = now_ms + (
                    self._settings.busy_backoff_ms
                    if is_busy
                    else self._settings.producer.retry_backoff_ms
                )
            case Meaning.FIND_COORDINATOR:
                self._keep_accepted(question, answer.errors)
                self._coordinators.pop(_kind_of(question), None)
                self._not_before_ms = now_ms + self._settings.producer.retry_backoff_ms
            case Meaning.ABORT | Meaning.ABORT_AND_BUMP:
                self._needs_next_epoch = self._needs_next_epoch or meaning is Meaning.ABORT_AND_BUMP
                self._need_abort(api, error, f"{type(question).__name__} was refused")
            case Meaning.FATAL:
                self._fail(api, error, f"{type(question).__name__} was refused")

    def meaning_of(self, question: Question, error: ErrorCode) -> Meaning:
        """Return how an error of a request is handled."""
        return meaning_of(question, error)

    def _decisive(self, question: Question, answer: Answered) -> ErrorCode:
        """Return the deciding error: the first fatal one, else the first retriable one, else
        any.
        """
        errors = [answer.error_code, *answer.errors.values()]
        rank = {
            Meaning.FATAL: 0,
            Meaning.FIND_COORDINATOR: 1,
            Meaning.RETRY: 2,
            Meaning.ABORT_AND_BUMP: 3,
            Meaning.ABORT: 3,
            Meaning.DONE: 4,
        }
        return min(errors, key=lambda error: rank[self.meaning_of(question, error)])

    def _done(self, question: Question, answer: Answered, now_ms: int) -> None:
        match question:
            case InitProducerId():
                assert answer.identity is not None, "InitProducerId returns an identity"
                self.state, self._needs_next_epoch = ProducerState.READY, False
                self._begins_implicit = self._may_add_implicitly
                self._effects.append(IdTaken(answer.identity))
                self._use(answer.identity)
                if answer.kept is not None:
                    self.state, self.prepared = ProducerState.PREPARED, answer.kept
                    self.is_implicit = self._has_begun_at_coordinator = True
            case AddPartitions(partitions=partitions):
                self._has_begun_at_coordinator = True
                for where in partitions:
                    self._new_partitions.pop(where, None)
                    self._partitions[where] = None
                self._pass_on(TimePassed(), now_ms)
            case AddOffsets(group_id=group_id):
                self._has_begun_at_coordinator = True
                self._added_groups[group_id] = None
            case CommitOffsets():
                self._has_begun_at_coordinator = True
                self._keep_accepted(
                    question, {where: ErrorCode.NONE for where, _ in question.offsets}
                )
            case EndTransaction(is_commit=is_commit):
                self._settle(
                    TransactionOutcome.COMMITTED if is_commit else TransactionOutcome.ABORTED,
                    answer.identity,
                )

    def _keep_accepted(
        self, question: Question, errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        """Remove the accepted offsets from those to be sent."""
        if not isinstance(question, CommitOffsets):
            return
        accepted = tuple(
            (where, offset)
            for where, offset in question.offsets
            if errors.get(where) is ErrorCode.NONE
        )
        for where, _ in accepted:
            self._offsets.pop(where, None)
        if accepted:
            self._effects.append(
                OffsetsAccepted(identity=question.identity, group=question.group, offsets=accepted)
            )

    # States
    # ----------------------------------------------------------------------------------------------

    def _use(self, identity: ProducerIdentity) -> None:
        if identity != self.identity:
            self._effects.append(IdentityTaken(identity))
        self.identity = identity
        self._sender.use(identity)

    def _settle(self, outcome: TransactionOutcome, identity: ProducerIdentity | None) -> None:
        """The transaction is completed; after a lost sequence the epoch is bumped next, unless
        EndTxn has done so.

        It is also bumped before the first transaction with transaction.version 2: with the epoch of
        the transaction before, whose markers may still be on their way, a partition would take the
        records for records of that one (TransactionManager.maybeUpdateTransactionV2Enabled).
        """
        if self._begins_implicit != self._may_add_implicitly:
            self._needs_next_epoch = self._needs_next_epoch or self._may_add_implicitly
            self._begins_implicit = self._may_add_implicitly
        assert self.identity is not None, "a transaction has an identity"
        self._effects.append(
            TransactionSettled(outcome=outcome, identity=self.identity, error_code=self.error_code)
        )
        self.error_code, self.prepared = ErrorCode.NONE, None
        self._partitions, self._new_partitions, self._offsets, self._added_groups = {}, {}, {}, {}
        self._has_begun_at_coordinator = False
        if identity is not None and identity != self.identity:
            self._needs_next_epoch = False
            self.state = ProducerState.READY
            self._use(identity)
        elif self._needs_next_epoch or self._sender.has_lost_sequence:
            self._needs_next_epoch, self.state = True, ProducerState.INITIALISING
        else:
            self.state = ProducerState.READY

    @property
    def _may_add_implicitly(self) -> bool:
        return self._settings.uses_implicit_adding and self._transaction_version >= IMPLICIT_SINCE

    def _need_abort(self, api: ApiKey, error_code: ErrorCode, reason: str) -> None:
        if self.state in (ProducerState.IN_TRANSACTION, ProducerState.COMMITTING):
            self.state, self.error_code = ProducerState.ABORTABLE_ERROR, error_code
            self._offsets = {}
            self._effects.append(
                ProducerErred(api=api, error_code=error_code, reason=reason, is_fatal=False)
            )

    def _fail(self, api: ApiKey, error_code: ErrorCode, reason: str) -> None:
        if self.state is ProducerState.FATAL_ERROR:
            return
        was_open = self.state in IN_DOUBT
        self.state, self.error_code = ProducerState.FATAL_ERROR, error_code
        self._effects.append(
            ProducerErred(api=api, error_code=error_code, reason=reason, is_fatal=True)
        )
        if was_open and self.identity is not None:
            self._effects.append(
                TransactionSettled(
                    outcome=TransactionOutcome.UNKNOWN,
                    identity=self.identity,
                    error_code=error_code,
                )
            )
        self._drop_unsent()

    def _fail_by_meaning(self, kind: CoordinatorKind, error_code: ErrorCode) -> None:
        if kind is CoordinatorKind.GROUP and error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._need_abort(ApiKey.FIND_COORDINATOR, error_code, "the group may not be used")
        else:
            self._fail(ApiKey.FIND_COORDINATOR, error_code, "FindCoordinator was refused")

    # Next action
    # ----------------------------------------------------------------------------------------------

    def _go_on(self, now_ms: int) -> None:
        while self._asked is None and self._finding is None:
            question = self._next_question()
            if question is None:
                if not self._is_over_without_asking():
                    return
                self._settle(
                    TransactionOutcome.COMMITTED
                    if self.state is ProducerState.COMMITTING
                    else TransactionOutcome.ABORTED,
                    None,
                )
                continue
            if self._not_before_ms > now_ms:
                return
            kind = _kind_of(question)
            if kind in self._coordinators:
                self._asked = question
                # Without AddPartitionsToTxn, a lost response may hide that the transaction was
                # started.
                self._has_begun_at_coordinator = self._has_begun_at_coordinator or isinstance(
                    question, CommitOffsets
                )
                self._effects.append(
                    SendQuestion(
                        broker_id=self._coordinators[kind],
                        question=question,
                        is_implicit=self.is_implicit,
                    )
                )
            else:
                self._finding = kind
                self._effects.append(FindCoordinator(kind=kind, key=self._key_of(question)))

    def _next_question(self) -> Question | None:
        transactional_id = self._settings.transactional_id
        if self.state is ProducerState.INITIALISING:
            timeout_ms = self._settings.transaction_timeout_ms
            return InitProducerId(
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                identity=self.identity,
                participates=self._settings.participates,
                keeps=self._settings.keeps and self.identity is None,
            )
        if self.state not in (
            ProducerState.IN_TRANSACTION,
            ProducerState.COMMITTING,
            ProducerState.ABORTING,
        ):
            return None
        assert self.identity is not None, "a transaction has an identity"
        if self._new_partitions:
            return AddPartitions(
                transactional_id=transactional_id,
                identity=self.identity,
                partitions=tuple(self._new_partitions),
            )
        if self._offsets:
            assert self._group is not None, "offsets belong to a group"
            if not self.is_implicit and self._group.group_id not in self._added_groups:
                return AddOffsets(
                    transactional_id=transactional_id,
                    identity=self.identity,
                    group_id=self._group.group_id,
                )
            offsets = tuple(self._offsets.items())
            return CommitOffsets(
                transactional_id=transactional_id,
                identity=self.identity,
                group=self._group,
                offsets=offsets,
            )
        if (
            self.state is ProducerState.IN_TRANSACTION
            or not self._may_end()
            or not self._has_begun_at_coordinator
        ):
            return None
        return EndTransaction(
            transactional_id=transactional_id,
            identity=self.identity,
            is_commit=self.state is ProducerState.COMMITTING,
        )

    def _may_end(self) -> bool:
        """A commit waits until all records are acknowledged, an abort until all sent batches are
        resolved.
        """
        return (
            not self._sender.record_count
            if self.state is ProducerState.COMMITTING
            else not self._sender.has_sent
        )

    def _is_over_without_asking(self) -> bool:
        """Whether a transaction ends that the coordinator does not know of."""
        is_ending = self.state in (ProducerState.COMMITTING, ProducerState.ABORTING)
        return is_ending and self._may_end() and not self._has_begun_at_coordinator

    def _key_of(self, question: Question) -> str:
        return (
            question.group.group_id
            if isinstance(question, CommitOffsets)
            else self._settings.transactional_id
        )


def _kind_of(question: Question) -> CoordinatorKind:
    return (
        CoordinatorKind.GROUP
        if isinstance(question, CommitOffsets)
        else CoordinatorKind.TRANSACTION
    )
