"""The impolite client: it breaks each rule of the protocol once, and must get Kafka's error.

It has ids of its own, and uses those of others where they are not its: a foreign transactional id
with its own producer id, a group that it has not joined, an epoch that has ended or never began.
What it sends is well-formed. An answer that only says that the cluster is busy is no verdict: the
request is sent once more.
Source: the requirements of `kraftsim/conformance`, which Apache Kafka passes; KIP-98, KIP-227,
KIP-320, KIP-360, KIP-447, KIP-588, KIP-848, KIP-890.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from kraftsim.clients.cluster_connections import (
    ClientIdentity,
    ClusterConnections,
    error_of,
    find_coordinator,
)
from kraftsim.clients.rules_transaction_steps import CoordinatorKind
from kraftsim.cluster.scenario import ClientHost, ScenarioFailed
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.k01_fetch import FetchRequest, FetchResponse
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.schema import Message

RETRY_SECONDS: Final = 0.2
TIMEOUT_MS: Final = 60_000
PRODUCE_VERSION, ADD_VERSION, ADD_OFFSETS_VERSION, COMMIT_VERSION, END_VERSION = 11, 3, 3, 4, 4
INIT_VERSION, PLAIN_COMMIT_VERSION, FETCH_VERSION, LIST_VERSION = 4, 8, 12, 7
"""The versions of a client without transaction.version 2."""
BUSY: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
STRANGER: Final = "stranger"
NOWHERE: Final = "no-such-topic"
FAR: Final = 1000
"""An epoch or a sequence that no client has reached."""
Identity = tuple[int, int]
"""Producer id and epoch."""


@dataclass(frozen=True, slots=True)
class Offence:
    """A broken rule: `commit` breaks it, and returns the error."""

    name: str
    commit: Callable[[], Awaitable[ErrorCode]]
    expected: tuple[ErrorCode, ...]


class RuleBreaker:
    """Breaks rules about one partition of a topic of others, a group, and a transactional id of
    others.
    """

    def __init__(
        self, client_host: ClientHost, *, topic: str, group_id: str, foreign_id: str
    ) -> None:
        self._topic = topic
        self._group_id = group_id
        self._foreign_id = foreign_id
        self._own_id = f"{client_host.name}-own"
        self._own: Identity = (-1, -1)
        self._former: Identity = (-1, -1)
        self._number = 0
        self._connections = ClusterConnections(
            client_host.world,
            ClientIdentity(
                client_id=client_host.name,
                bootstrap=tuple(client_host.bootstrap),
                frame_events=client_host.frame_events,
            ),
        )

    async def prepare(self) -> None:
        """Take the own transactional id twice: the first epoch is past then."""
        self._former = await self._taken()
        self._own = await self._taken()

    async def offend(self, offence: Offence) -> None:
        """Break a rule. Raises ScenarioFailed for another error than Kafka's."""
        found = await self._answered(offence.commit, offence.expected)
        if found not in offence.expected:
            wanted = " or ".join(each.name for each in offence.expected)
            raise ScenarioFailed(f"{offence.name}: {found.name}, not {wanted}")

    def close(self) -> None:
        """End the client."""
        self._connections.close()

    def offences(self) -> tuple[Offence, ...]:
        """Return every offence, in any order."""
        return (*self._of_transactions(), *self._of_groups(), *self._of_data())

    # The tables
    # ----------------------------------------------------------------------------------------------

    def _of_transactions(self) -> tuple[Offence, ...]:
        fenced = (ErrorCode.PRODUCER_FENCED,)
        unmapped = (ErrorCode.INVALID_PRODUCER_ID_MAPPING,)
        return (
            Offence(
                "EndTxn without a transaction",
                lambda: self._end(self._own_id, self._own),
                (ErrorCode.INVALID_TXN_STATE,),
            ),
            Offence("EndTxn of an unknown id", lambda: self._end("unknown", self._own), unmapped),
            Offence(
                "EndTxn of another's id", lambda: self._end(self._foreign_id, self._own), unmapped
            ),
            Offence(
                "EndTxn in a past epoch", lambda: self._end(self._own_id, self._former), fenced
            ),
            Offence(
                "EndTxn in a future epoch", lambda: self._end(self._own_id, self._newer), fenced
            ),
            Offence(
                "AddPartitionsToTxn of another's id",
                lambda: self._add(self._foreign_id, self._own, self._topic),
                unmapped,
            ),
            Offence(
                "AddPartitionsToTxn in a past epoch",
                lambda: self._add(self._own_id, self._former, self._topic),
                fenced,
            ),
            Offence(
                "AddPartitionsToTxn in a future epoch",
                lambda: self._add(self._own_id, self._newer, self._topic),
                fenced,
            ),
            Offence(
                "AddPartitionsToTxn for an absent topic",
                lambda: self._add(self._own_id, self._own, NOWHERE),
                (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,),
            ),
            Offence(
                "AddOffsetsToTxn of another's id",
                lambda: self._add_offsets(self._foreign_id, self._own),
                unmapped,
            ),
            Offence(
                "InitProducerId with a time-out of nothing",
                lambda: self._init(self._own_id, timeout_ms=0),
                (ErrorCode.INVALID_TRANSACTION_TIMEOUT,),
            ),
            Offence(
                "InitProducerId without a name",
                lambda: self._init(""),
                (ErrorCode.INVALID_REQUEST,),
            ),
            Offence(
                "InitProducerId with another's producer id",
                lambda: self._init(self._foreign_id, self._own),
                fenced,
            ),
            Offence(
                "Produce in a transaction that has not begun",
                lambda: self._produce(self._own, 0, transactional_id=self._own_id),
                (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE),
            ),
        )

    def _of_groups(self) -> tuple[Offence, ...]:
        unknown = (ErrorCode.UNKNOWN_MEMBER_ID,)
        return (
            Offence("Heartbeat of a stranger", self._heartbeat, unknown),
            Offence("SyncGroup of a stranger", self._sync, unknown),
            Offence("OffsetCommit of a stranger", self._commit, unknown),
            Offence(
                "TxnOffsetCommit of a stranger",
                lambda: self._commit_in_transaction(STRANGER, 1),
                unknown,
            ),
        )

    def _of_data(self) -> tuple[Offence, ...]:
        return (
            Offence(
                "Produce with a gap in the sequences",
                partial(self._produce_after_first, FAR),
                (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,),
            ),
            Offence(
                "Produce that overlaps the last batch",
                partial(self._produce_after_first, 0, 2),
                (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,),
            ),
            Offence(
                "Produce in a past epoch",
                self._produce_in_past_epoch,
                (ErrorCode.INVALID_PRODUCER_EPOCH,),
            ),
            Offence(
                "Produce with two acknowledgements",
                lambda: self._produce((-1, -1), -1, acks=2),
                (ErrorCode.INVALID_REQUIRED_ACKS,),
            ),
            Offence(
                "Produce of damaged records",
                lambda: self._produce((-1, -1), -1, is_damaged=True),
                (ErrorCode.CORRUPT_MESSAGE,),
            ),
            Offence(
                "Fetch in a session that does not exist",
                self._fetch,
                (ErrorCode.FETCH_SESSION_ID_NOT_FOUND,),
            ),
            Offence(
                "ListOffsets in a future leader epoch",
                self._list_offsets,
                (ErrorCode.UNKNOWN_LEADER_EPOCH,),
            ),
        )

    @property
    def _newer(self) -> Identity:
        return (self._own[0], self._own[1] + FAR)

    # Requests to coordinators
    # ----------------------------------------------------------------------------------------------

    async def _end(self, transactional_id: str, identity: Identity) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity[0],
            producer_epoch=identity[1],
            committed=True,
        )
        answer = await self._ask_transactions(transactional_id, request, END_VERSION)
        assert isinstance(answer, EndTxnResponse), "EndTxn was asked"
        return error_of(answer.error_code)

    async def _add(self, transactional_id: str, identity: Identity, topic: str) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        answer = await self._ask_transactions(transactional_id, request, ADD_VERSION)
        assert isinstance(answer, AddPartitionsToTxnResponse), "AddPartitionsToTxn was asked"
        row = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        return error_of(row.partition_error_code)

    async def _add_offsets(self, transactional_id: str, identity: Identity) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity[0],
            producer_epoch=identity[1],
            group_id=self._group_id,
        )
        answer = await self._ask_transactions(transactional_id, request, ADD_OFFSETS_VERSION)
        assert isinstance(answer, AddOffsetsToTxnResponse), "AddOffsetsToTxn was asked"
        return error_of(answer.error_code)

    async def _init(
        self,
        transactional_id: str,
        identity: Identity = (-1, -1),
        *,
        timeout_ms: int = TIMEOUT_MS,
    ) -> ErrorCode:
        answer = await self._init_answer(transactional_id, identity, timeout_ms)
        return error_of(answer.error_code)

    async def _init_answer(
        self, transactional_id: str | None, identity: Identity, timeout_ms: int
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=identity[0],
            producer_epoch=identity[1],
        )
        answer = (
            await self._ask_transactions(transactional_id, request, INIT_VERSION)
            if transactional_id
            else await (await self._connections.to_any()).request(request, api_version=INIT_VERSION)
        )
        assert isinstance(answer, InitProducerIdResponse), "InitProducerId was asked"
        return answer

    async def _taken(self, transactional_id: str | None = "") -> Identity:
        """Take the own transactional id, or with None a producer id without one."""
        name = self._own_id if transactional_id == "" else transactional_id
        found: Identity = (-1, -1)

        async def take() -> ErrorCode:
            nonlocal found
            answer = await self._init_answer(name, (-1, -1), TIMEOUT_MS)
            found = (answer.producer_id, answer.producer_epoch)
            return error_of(answer.error_code)

        error = await self._answered(take, (ErrorCode.NONE,))
        assert error is ErrorCode.NONE, f"a valid InitProducerId got {error.name}"
        return found

    async def _heartbeat(self) -> ErrorCode:
        answer = await self._ask_group(
            HeartbeatRequest(group_id=self._group_id, generation_id=1, member_id=STRANGER), 3
        )
        assert isinstance(answer, HeartbeatResponse), "Heartbeat was asked"
        return error_of(answer.error_code)

    async def _sync(self) -> ErrorCode:
        answer = await self._ask_group(
            SyncGroupRequest(
                group_id=self._group_id, generation_id=1, member_id=STRANGER, assignments=[]
            ),
            3,
        )
        assert isinstance(answer, SyncGroupResponse), "SyncGroup was asked"
        return error_of(answer.error_code)

    async def _commit(self) -> ErrorCode:
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=FAR, committed_metadata=""
        )
        answer = await self._ask_group(
            OffsetCommitRequest(
                group_id=self._group_id,
                generation_id_or_member_epoch=1,
                member_id=STRANGER,
                topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[row])],
            ),
            PLAIN_COMMIT_VERSION,
        )
        assert isinstance(answer, OffsetCommitResponse), "OffsetCommit was asked"
        return error_of(answer.topics[0].partitions[0].error_code)

    async def _commit_in_transaction(self, member_id: str, generation_id: int) -> ErrorCode:
        """Commit in a transaction that includes the group, and abort that."""
        own = self._own
        begun = await self._answered(
            lambda: self._add_offsets(self._own_id, own), (ErrorCode.NONE,)
        )
        assert begun is ErrorCode.NONE, f"a valid AddOffsetsToTxn got {begun.name}"
        row = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=FAR, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._own_id,
            group_id=self._group_id,
            producer_id=own[0],
            producer_epoch=own[1],
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            topics=[TxnOffsetCommitRequestTopic(name=self._topic, partitions=[row])],
        )

        async def commit() -> ErrorCode:
            answer = await self._ask_group(request, COMMIT_VERSION)
            assert isinstance(answer, TxnOffsetCommitResponse), "TxnOffsetCommit was asked"
            return error_of(answer.topics[0].partitions[0].error_code)

        found = await self._answered(commit, ())
        self._former, self._own = self._own, await self._taken()  # aborts the transaction
        return found

    # Requests to the leader of the partition
    # ----------------------------------------------------------------------------------------------

    async def _produce_after_first(self, sequence: int, records: int = 1) -> ErrorCode:
        """Write the first batch of a fresh producer id, and then one that does not follow it."""
        identity = await self._taken(None)
        first = await self._answered(lambda: self._produce(identity, 0), (ErrorCode.NONE,))
        assert first is ErrorCode.NONE, f"a valid Produce got {first.name}"
        return await self._answered(lambda: self._produce(identity, sequence, records=records), ())

    async def _produce_in_past_epoch(self) -> ErrorCode:
        producer_id, _ = await self._taken(None)
        first = await self._answered(lambda: self._produce((producer_id, 3), 0), (ErrorCode.NONE,))
        assert first is ErrorCode.NONE, f"a valid Produce got {first.name}"
        return await self._answered(lambda: self._produce((producer_id, 2), 0), ())

    async def _produce(
        self,
        identity: Identity,
        sequence: int,
        *,
        records: int = 1,
        transactional_id: str | None = None,
        acks: int = -1,
        is_damaged: bool = False,
    ) -> ErrorCode:
        self._number += 1
        batch = build_batch(
            [Record(index, 0, b"impolite-%d" % self._number, b"", ()) for index in range(records)],
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
            transactional=transactional_id is not None,
        )
        if is_damaged:
            batch = bytes(batch)[:-1] + bytes([bytes(batch)[-1] ^ 1])
        data = TopicProduceData(
            name=self._topic, partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        request = ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=5000, topic_data=[data]
        )
        answer = await self._ask_leader(request, PRODUCE_VERSION)
        assert isinstance(answer, ProduceResponse), "Produce was asked"
        return error_of(answer.responses[0].partition_responses[0].error_code)

    async def _fetch(self) -> ErrorCode:
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=12345, session_epoch=7, topics=[]
        )
        answer = await self._ask_leader(request, FETCH_VERSION)
        assert isinstance(answer, FetchResponse), "Fetch was asked"
        return error_of(answer.error_code)

    async def _list_offsets(self) -> ErrorCode:
        row = ListOffsetsPartition(partition_index=0, current_leader_epoch=FAR, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=self._topic, partitions=[row])]
        )
        answer = await self._ask_leader(request, LIST_VERSION)
        assert isinstance(answer, ListOffsetsResponse), "ListOffsets was asked"
        return error_of(answer.topics[0].partitions[0].error_code)

    # Asking
    # ----------------------------------------------------------------------------------------------

    async def _answered(
        self, ask: Callable[[], Awaitable[ErrorCode]], expected: tuple[ErrorCode, ...]
    ) -> ErrorCode:
        """Ask until the answer is expected, or says more than that the cluster is busy."""
        while True:
            try:
                found = await ask()
            except OSError:
                found = ErrorCode.REQUEST_TIMED_OUT
            if found in expected or found not in BUSY:
                return found
            await asyncio.sleep(RETRY_SECONDS)

    async def _ask_transactions(self, key: str, request: Message, version: int) -> Message:
        return await self._ask_coordinator(CoordinatorKind.TRANSACTION, key, request, version)

    async def _ask_group(self, request: Message, version: int) -> Message:
        return await self._ask_coordinator(CoordinatorKind.GROUP, self._group_id, request, version)

    async def _ask_coordinator(
        self, kind: CoordinatorKind, key: str, request: Message, version: int
    ) -> Message:
        found = await find_coordinator(self._connections, kind, key)
        if isinstance(found, ErrorCode):
            raise TimeoutError(found.name)
        return await (await self._connections.to_broker(found)).request(
            request, api_version=version
        )

    async def _ask_leader(self, request: Message, version: int) -> Message:
        found = await self._connections.metadata([self._topic])
        if not found.topics or not found.topics[0].partitions:
            raise TimeoutError(self._topic)
        leader_id = found.topics[0].partitions[0].leader_id
        return await (await self._connections.to_broker(leader_id)).request(
            request, api_version=version
        )
