"""Steps for a transaction coordinator: producer ids, partitions, EndTxn, and descriptions of
transactions.
"""

from dataclasses import dataclass

from kraftsim.conformance.probes.conversation import (
    UNKNOWN_ID,
    ProbeConversation,
    give_up_at,
    named,
    pause_until,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Transient errors while a block of ids is fetched or a coordinator is loading: retried, and not
recorded.
"""
EPOCHS_SINCE = 3
"""The first version of InitProducerId with a producer id and epoch."""
FOR_BROKERS_SINCE = 4
"""The first version of AddPartitionsToTxn that brokers send."""
MINUTE_MS = 60_000
BUMPS_SINCE = 5
"""The first version of EndTxn whose response contains a producer id and epoch."""


def shown(**parts: object) -> str:
    """Return the non-default arguments, for the text of a step."""
    return "".join(
        f", {name.replace('_', ' ')} {value}"
        for name, value in parts.items()
        if value not in (None, "", (), False)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """The producer, and its deviations: another producer id, an older or newer epoch, another
    transactional id.
    """

    client_name: str = "a"
    id_of: str = ""
    epoch: int = 0
    name: str | None = None

    def transactional_id(self, conversation: ProbeConversation) -> str:
        """Return the transactional id to send."""
        return (
            conversation.producer(self.client_name).transactional_id
            if self.name is None
            else self.name
        )

    def identity(self, conversation: ProbeConversation) -> tuple[int, int]:
        """Return the producer id and epoch to send."""
        return conversation.producer(
            self.id_of or self.client_name
        ).producer_id, conversation.producer(self.client_name).producer_epoch + self.epoch

    def client_text(self) -> str:
        """Return the producer as text."""
        client_name = "" if self.client_name == "a" else f" by {self.client_name}"
        epoch = f", epoch {self.epoch:+d}" if self.epoch else ""
        name = "" if self.name is None else f", name {self.name!r}"
        return f"{client_name}{epoch}{name}{shown(with_id_of=self.id_of)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Init(Identified):
    """InitProducerId.

    `keeps` sends the producer's own id and epoch (KIP-360), which `epoch` and `id_of` may falsify.

    `until_free` retries while the previous transaction is completing.
    """

    version: int = 4
    timeout_ms: int = MINUTE_MS
    keeps: bool = False
    until_free: bool = False
    nameless: bool = False
    id_only: bool = False
    epoch_only: bool = False

    def words(self) -> str:
        """Return the request as text."""
        rest = f", timeout {self.timeout_ms}" if self.timeout_ms != MINUTE_MS else ""
        keeps = (
            ", own id and epoch"
            if self.keeps
            else ", an id without epoch"
            if self.id_only
            else ", an epoch without id"
            if self.epoch_only
            else ""
        )
        again = ", until it is not 51" if self.until_free else ""
        return (
            "InitProducerId "
            f"{self.version}{', no transactional id' if self.nameless else ''}{keeps}"
            f"{self.client_text()}{rest}{again}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request, and store the producer id and epoch."""
        version = conversation.offered(ApiKey.INIT_PRODUCER_ID, self.version)
        asked = InitProducerIdRequest(
            transactional_id=None if self.nameless else self.transactional_id(conversation),
            transaction_timeout_ms=self.timeout_ms,
        )
        producer_id, epoch = self.identity(conversation)
        if version >= EPOCHS_SINCE and (self.keeps or self.id_only):
            asked.producer_id = producer_id if producer_id >= 0 else 7
        if version >= EPOCHS_SINCE and (self.keeps or self.epoch_only):
            asked.producer_epoch = max(epoch, 0)
        waits = (*PASSING, ErrorCode.CONCURRENT_TRANSACTIONS) if self.until_free else PASSING
        deadline = give_up_at()
        while (
            answer := conversation.peer.ask(asked, version, InitProducerIdResponse)
        ).error_code in waits:
            pause_until(deadline, f"{self.words()}, last {named(answer.error_code)}")
        if answer.error_code == ErrorCode.NONE:
            own = conversation.producer(self.client_name)
            own.producer_id, own.producer_epoch = answer.producer_id, answer.producer_epoch
            return f"ok, {conversation.letter(answer.producer_id)} epoch {answer.producer_epoch}"
        rest = (
            ""
            if (answer.producer_id, answer.producer_epoch) == (-1, -1)
            else f", {answer.producer_id} epoch {answer.producer_epoch}"
        )
        return named(answer.error_code) + rest


def init(client_name: str = "a", version: int = 4, **rest: object) -> Init:
    """Return an InitProducerId."""
    # arg-type: keyword arguments of several types
    return Init(client_name=client_name, version=version, **rest)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Add(Identified):
    """AddPartitionsToTxn of producers (up to version 3).

    `topics` are (name, partitions); the empty name is the probe's own topic.
    """

    version: int = 3
    topics: tuple[tuple[str, tuple[int, ...]], ...] = (("", (0,)),)

    def words(self) -> str:
        """Return the request as text."""
        return f"AddPartitionsToTxn {self.version}{_places(self.topics)}{self.client_text()}"

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.ADD_PARTITIONS_TO_TXN, self.version)
        producer_id, epoch = self.identity(conversation)
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id(conversation),
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=conversation.topic_named(name), partitions=list(rows))
                for name, rows in self.topics
            ],
        )
        answer = conversation.peer.ask(asked, version, AddPartitionsToTxnResponse)
        return _codes(answer.results_by_topic_v3_and_below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify(Identified):
    """AddPartitionsToTxn of brokers (since version 4): verifies that partitions are in the
    transaction, or with `adds` adds them.

    `beside` are further transactions in the same request, by producer.
    """

    version: int = 4
    topics: tuple[tuple[str, tuple[int, ...]], ...] = (("", (0,)),)
    adds: bool = False
    beside: tuple[str, ...] = ()

    def words(self) -> str:
        """Return the request as text."""
        verb = "adds" if self.adds else "verifies"
        return (
            f"AddPartitionsToTxn {self.version} "
            f"{verb}{_places(self.topics)}{self.client_text()}"
            f"{shown(beside=', '.join(self.beside))}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.ADD_PARTITIONS_TO_TXN, self.version)
        topics = [
            AddPartitionsToTxnTopic(name=conversation.topic_named(name), partitions=list(rows))
            for name, rows in self.topics
        ]
        rows = [(self.transactional_id(conversation), *self.identity(conversation))]
        rows += [
            (
                conversation.producer(client_name).transactional_id,
                conversation.producer(client_name).producer_id,
                conversation.producer(client_name).producer_epoch,
            )
            for client_name in self.beside
        ]
        asked = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=name,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    verify_only=not self.adds,
                    topics=topics,
                )
                for name, producer_id, epoch in rows
            ]
        )
        answer = conversation.peer.ask(asked, version, AddPartitionsToTxnResponse)
        if answer.error_code:
            return f"whole request {named(answer.error_code)}"
        found = {each.transactional_id: each for each in answer.results_by_transaction}
        returned = [_codes(found[name].topic_results) for name, _, _ in rows if name in found]
        return "; ".join(returned) or "no transactions"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsStep(Identified):
    """AddOffsetsToTxn for the probe's group, or for another one."""

    version: int = 3
    group: str | None = None

    def words(self) -> str:
        """Return the request as text."""
        return (
            "AddOffsetsToTxn "
            f"{self.version}{'' if self.group is None else f', group {self.group!r}'}"
            f"{self.client_text()}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.ADD_OFFSETS_TO_TXN, self.version)
        producer_id, epoch = self.identity(conversation)
        asked = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id(conversation),
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=conversation.group.group_id if self.group is None else self.group,
        )
        return named(conversation.peer.ask(asked, version, AddOffsetsToTxnResponse).error_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Identified):
    """EndTxn."""

    version: int = 3
    commits: bool = True

    def words(self) -> str:
        """Return the request as text."""
        return f"EndTxn {self.version} {'commit' if self.commits else 'abort'}{self.client_text()}"

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request, and continue with the producer id and epoch of the response if it
        contains them.
        """
        version = conversation.offered(ApiKey.END_TXN, self.version)
        producer_id, epoch = self.identity(conversation)
        asked = EndTxnRequest(
            transactional_id=self.transactional_id(conversation),
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self.commits,
        )
        answer = conversation.peer.ask(asked, version, EndTxnResponse)
        if version < BUMPS_SINCE or answer.error_code:
            return named(answer.error_code)
        own = conversation.producer(self.client_name)
        own.producer_id, own.producer_epoch = answer.producer_id, answer.producer_epoch
        return f"ok, {conversation.letter(answer.producer_id)} epoch {answer.producer_epoch}"


def commit(client_name: str = "a", version: int = 3, **rest: object) -> End:
    """Return an EndTxn that commits."""
    # arg-type: keyword arguments of several types
    return End(client_name=client_name, version=version, commits=True, **rest)  # type: ignore[arg-type]


def abort(client_name: str = "a", version: int = 3, **rest: object) -> End:
    """Return an EndTxn that aborts."""
    # arg-type: keyword arguments of several types
    return End(client_name=client_name, version=version, commits=False, **rest)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(Identified):
    """DescribeTransactions of one producer's transactional id.

    With `until`, repeated until it is in that state.
    """

    until: str = ""

    def words(self) -> str:
        """Return the request as text."""
        return f"DescribeTransactions{self.client_text()}{shown(until=self.until)}"

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.DESCRIBE_TRANSACTIONS, 0)
        asked = DescribeTransactionsRequest(transactional_ids=[self.transactional_id(conversation)])
        deadline = give_up_at()
        while True:
            row = conversation.peer.ask(
                asked, version, DescribeTransactionsResponse
            ).transaction_states[0]
            if not self.until or row.transaction_state == self.until:
                break
            pause_until(deadline, f"{self.words()}, last {row.transaction_state}")
        if row.error_code:
            return named(row.error_code)
        places = sum(len(topic.partitions) for topic in row.topics)
        started = "started" if row.transaction_start_time_ms >= 0 else "not started"
        return (
            f"{row.transaction_state}, {conversation.letter(row.producer_id)} epoch "
            f"{row.producer_epoch}, {places} partitions, {started}"
        )


def once(state: str, client_name: str = "a") -> Describe:
    """Return a wait for a state of a transaction."""
    return Describe(client_name=client_name, until=state)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListThem:
    """ListTransactions with filters; only this probe's own transactions are shown."""

    version: int = 0
    states: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    longer_than_ms: int = -1

    def words(self) -> str:
        """Return the request as text."""
        lasting = f", longer than {self.longer_than_ms} ms" if self.longer_than_ms >= 0 else ""
        return (
            "ListTransactions "
            f"{self.version}{shown(states=', '.join(self.states), of=', '.join(self.of))}"
            f"{lasting}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.LIST_TRANSACTIONS, self.version)
        asked = ListTransactionsRequest(
            state_filters=list(self.states),
            producer_id_filters=[
                conversation.producer(client_name).producer_id for client_name in self.of
            ],
        )
        if version >= 1:
            asked.duration_filter = self.longer_than_ms
            pause_until(
                give_up_at(), self.words()
            )  # what began in this millisecond lasts no longer than 0 ms yet
        answer = conversation.peer.ask(asked, version, ListTransactionsResponse)
        own = {
            producer.transactional_id: client_name
            for client_name, producer in conversation.producers.items()
            if client_name != UNKNOWN_ID
        }
        rows = sorted(
            f"{own[row.transactional_id]} {row.transaction_state}"
            for row in answer.transaction_states
            if row.transactional_id in own
        )
        strange = (
            f", unknown: {', '.join(answer.unknown_state_filters)}"
            if answer.unknown_state_filters
            else ""
        )
        return f"{named(answer.error_code)}, {', '.join(rows) or 'none of these'}{strange}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorStep:
    """FindCoordinator; the names are sent unchanged."""

    version: int
    key_type: int = 1
    keys: tuple[str, ...] = ("probe",)

    def words(self) -> str:
        """Return the request as text."""
        return (
            f"FindCoordinator {self.version}, type {self.key_type}, of "
            f"{', '.join(map(repr, self.keys)) or 'nothing'}"
        )

    def put(self, conversation: ProbeConversation) -> str:
        """Send the request."""
        version = conversation.offered(ApiKey.FIND_COORDINATOR, self.version)
        asked = (
            FindCoordinatorRequest(coordinator_keys=list(self.keys))
            if version >= 4
            else FindCoordinatorRequest(key=self.keys[0])
        )
        if version >= 1:
            asked.key_type = self.key_type
        answer = conversation.peer.ask(asked, version, FindCoordinatorResponse)
        if version < 4:
            return named(answer.error_code) + (", a node" if answer.node_id >= 0 else "")
        return (
            "; ".join(
                f"{row.key!r} {named(row.error_code)}{', a node' if row.node_id >= 0 else ''}"
                for row in answer.coordinators
            )
            or "nothing"
        )


def _places(topics: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
    if topics == (("", (0,)),):
        return ""
    return " of " + (
        ", ".join(f"{name or 'topic'} {list(rows)}" for name, rows in topics) or "nothing"
    )


def _codes(topics: list[AddPartitionsToTxnTopicResult]) -> str:
    """Return the errors in the order of partitions: Kafka's own order is that of a hash table."""
    rows = sorted(
        (topic.name, row.partition_index, row.partition_error_code)
        for topic in topics
        for row in topic.results_by_partition
    )
    return ", ".join(named(code) for _, _, code in rows) or "nothing"
