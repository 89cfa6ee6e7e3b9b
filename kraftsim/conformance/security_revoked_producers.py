"""An ACL that is deleted while a producer works: in an open transaction, between idempotent
batches.

The broker authorizes every request on arrival; earlier authorizations do not count.
Source: KIP-98, KIP-679; kafka.server.KafkaApis; verified against Apache Kafka 3.9.1 and 4.4.0.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kraftsim.conformance.batches import batch, produce, produce_request, produce_versions
from kraftsim.conformance.expect import expect_equal
from kraftsim.conformance.group_client import GroupClient, with_retries
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.security_rights import (
    CLUSTER,
    CLUSTER_FAILED,
    CLUSTER_NAME,
    GROUP,
    GROUP_FAILED,
    TOPIC_FAILED,
    TRANSACTION,
    TRANSACTION_FAILED,
    create,
    require_authorizer,
    revoke,
    rule,
    ruled,
)
from kraftsim.conformance.target import Target, TargetTopic
from kraftsim.conformance.transactional_id import (
    BUSY,
    TIMEOUT_MS,
    Producer,
    TransactionalId,
    partitions_of,
    topics_of,
)
from protocol.acls import AclOperation
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import ProduceResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)

REQUIREMENTS = Requirements("security", 6, "Deletion of an ACL of a producer")
READ, WRITE, IDEMPOTENT_WRITE = AclOperation.READ, AclOperation.WRITE, AclOperation.IDEMPOTENT_WRITE
LAST_VERSION_OF_PRODUCERS = 3
"""Of AddPartitionsToTxn; brokers send the later ones."""
VERSION = 3
"""Of requests whose versions do not differ here: EndTxn, AddOffsetsToTxn, TxnOffsetCommit."""
NOT_ATTEMPTED = int(ErrorCode.OPERATION_NOT_ATTEMPTED)
Errors = dict[str, list[int]]
"""API and version -> errors by partition, or the one of the whole response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A transaction of alice: one batch in partition 0 of `topic`, and the group's offset of it."""

    transactional_id: TransactionalId
    producer: Producer
    topic: TargetTopic
    other: TargetTopic
    """A topic whose ACL alice keeps."""
    group_id: str

    def produced(self, peer: Peer, sequence: int, version: int = 9) -> int:
        """Produce a transactional batch to partition 0, and return its error."""
        records = batch(
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        asked = produce_request(
            self.topic.name, records, transactional_id=self.transactional_id.name
        )
        return (
            peer.ask(asked, version, ProduceResponse).responses[0].partition_responses[0].error_code
        )

    def initialized(self, peer: Peer, version: int) -> int:
        """Send InitProducerId for the next epoch, and return the error."""
        asked = InitProducerIdRequest(
            transactional_id=self.transactional_id.name, transaction_timeout_ms=TIMEOUT_MS
        )
        return peer.ask(asked, version, InitProducerIdResponse).error_code

    def added(self, peer: Peer, version: int = VERSION) -> list[int]:
        """Add a partition of either topic, and return the errors."""
        partitions = [(self.topic.name, 0), (self.other.name, 0)]
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id.name,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=topics_of(partitions),
        )
        answer = peer.ask(asked, version, AddPartitionsToTxnResponse)
        found = {
            topic.name: topic.results_by_partition[0].partition_error_code
            for topic in answer.results_by_topic_v3_and_below
        }
        return [found[name] for name, _ in partitions]

    def offsets_added(self, peer: Peer, version: int = VERSION) -> int:
        """Add the offsets of the group, and return the error."""
        asked = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            group_id=self.group_id,
        )
        return peer.ask(asked, version, AddOffsetsToTxnResponse).error_code

    def committed(self, peer: Peer, version: int = VERSION) -> list[int]:
        """Commit an offset of either topic in the transaction, and return the errors."""
        rows = [
            TxnOffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata=""
            )
        ]
        asked = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id.name,
            group_id=self.group_id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            topics=[
                TxnOffsetCommitRequestTopic(name=each.name, topic_id=each.topic_id, partitions=rows)
                for each in (self.topic, self.other)
            ],
        )
        answer = peer.ask(asked, version, TxnOffsetCommitResponse)
        return [
            row.partitions[0].error_code
            for each in (self.topic, self.other)
            for row in answer.topics
            if _is_about(row, each)
        ]

    def ended(self, peer: Peer, version: int = VERSION) -> int:
        """Send EndTxn with a commit, and return the error."""
        asked = EndTxnRequest(
            transactional_id=self.transactional_id.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=True,
        )
        return peer.ask(asked, version, EndTxnResponse).error_code

    def errors(self, target: Target, peer: Peer) -> Errors:
        """Send every request of an open transaction in every version; `Produce` with the next
        sequence.
        """
        asked: dict[ApiKey, Callable[[int], int | list[int]]] = {
            ApiKey.INIT_PRODUCER_ID: lambda version: self.initialized(peer, version),
            ApiKey.ADD_PARTITIONS_TO_TXN: lambda version: self.added(peer, version),
            ApiKey.ADD_OFFSETS_TO_TXN: lambda version: self.offsets_added(peer, version),
            ApiKey.TXN_OFFSET_COMMIT: lambda version: self.committed(peer, version),
            ApiKey.END_TXN: lambda version: self.ended(peer, version),
        }
        found: Errors = {}
        for key, ask in asked.items():
            for version in target.versions(key):
                if key != ApiKey.ADD_PARTITIONS_TO_TXN or version <= LAST_VERSION_OF_PRODUCERS:
                    answer = ask(version)
                    found[f"{key.name} v{version}"] = (
                        answer if isinstance(answer, list) else [answer]
                    )
        for version in produce_versions(target):
            found[f"PRODUCE v{version}"] = [self.produced(peer, 1, version)]
        return found


def _is_about(row: TxnOffsetCommitResponseTopic, topic: TargetTopic) -> bool:
    """Return whether a row of a response belongs to a topic: by its name, or in later versions by
    its id.
    """
    return row.name == topic.name or row.topic_id == topic.topic_id


def begun(target: Target) -> Work:
    """Create what a transaction needs, and its producer id.

    Raises Inapplicable without an authorizer.
    """
    require_authorizer(target)
    transactional_id = TransactionalId(target)
    return Work(
        transactional_id=transactional_id,
        producer=transactional_id.producer(),
        topic=target.topic(),
        other=target.topic(),
        group_id=GroupClient(target).group_id,
    )


def opened(work: Work, peer: Peer) -> None:
    """Begin the transaction as alice: partitions, one batch, the group's offsets."""
    added = with_retries(lambda: work.added(peer), lambda errors: errors[0], BUSY)
    expect_equal(added, [0, 0], "AddPartitionsToTxn")
    expect_equal(work.produced(peer, 0), 0, "Produce")
    expect_equal(work.offsets_added(peer), 0, "AddOffsetsToTxn")
    expect_equal(work.committed(peer), [0, 0], "TxnOffsetCommit")


@REQUIREMENTS.that(
    1,
    "without WRITE on the transactional id every request of the open transaction returns "
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED; it stays open",
    source="KIP-98; KafkaApis",
)
def id_revoked(target: Target) -> None:
    work = begun(target)
    may_use = rule(work.transactional_id.name, WRITE, resource=TRANSACTION)
    topics, group = (
        (rule(work.topic.name, AclOperation.ALL), rule(work.other.name, AclOperation.ALL)),
        rule(work.group_id, READ, resource=GROUP),
    )
    with ruled(target, may_use, group, *topics) as peer:
        opened(work, peer)
        revoke(target, may_use)
        found = work.errors(target, peer)
        expect_equal(
            found,
            {label: [TRANSACTION_FAILED] * len(errors) for label, errors in found.items()},
            "errors",
        )
        state = work.transactional_id.described()
        partitions = [
            each for each in partitions_of(state) if each[0] in (work.topic.name, work.other.name)
        ]
        expect_equal(
            (state.transaction_state, len(partitions)), ("Ongoing", 2), "state, partitions"
        )
        create(target, may_use)
        expect_equal(work.produced(peer, 1), 0, "Produce with the ACL")
        expect_equal(work.ended(peer), 0, "EndTxn with the ACL")
    work.transactional_id.reached("CompleteCommit")


@REQUIREMENTS.that(
    2,
    "without WRITE on a topic batches and AddPartitionsToTxn return TOPIC_AUTHORIZATION_FAILED; "
    "the transaction still commits",
    source="KIP-98; KafkaApis",
)
def topic_revoked(target: Target) -> None:
    work = begun(target)
    may_write, reads = (
        rule(work.topic.name, WRITE),
        (rule(work.topic.name, READ), rule(work.other.name, AclOperation.ALL)),
    )
    may_use, group = (
        rule(work.transactional_id.name, WRITE, resource=TRANSACTION),
        rule(work.group_id, READ, resource=GROUP),
    )
    with ruled(target, may_write, may_use, group, *reads) as peer:
        opened(work, peer)
        revoke(target, may_write)
        for version in produce_versions(target):
            expect_equal(work.produced(peer, 1, version), TOPIC_FAILED, f"Produce v{version}")
        expect_equal(work.added(peer), [TOPIC_FAILED, NOT_ATTEMPTED], "AddPartitionsToTxn")
        expect_equal(work.committed(peer), [0, 0], "TxnOffsetCommit")
        expect_equal(work.ended(peer), 0, "EndTxn")
    work.transactional_id.reached("CompleteCommit")


@REQUIREMENTS.that(
    3,
    "without READ on topic or group TxnOffsetCommit returns TOPIC_AUTHORIZATION_FAILED or "
    "GROUP_AUTHORIZATION_FAILED; it still commits",
    source="KIP-98; KafkaApis",
)
def reading_revoked(target: Target) -> None:
    work = begun(target)
    may_read, writes = (
        rule(work.topic.name, READ),
        (rule(work.topic.name, WRITE), rule(work.other.name, AclOperation.ALL)),
    )
    may_use, group = (
        rule(work.transactional_id.name, WRITE, resource=TRANSACTION),
        rule(work.group_id, READ, resource=GROUP),
    )
    with ruled(target, may_read, may_use, group, *writes) as peer:
        opened(work, peer)
        revoke(target, may_read)
        for version in target.versions(ApiKey.TXN_OFFSET_COMMIT):
            expect_equal(
                work.committed(peer, version),
                [TOPIC_FAILED, 0],
                f"TxnOffsetCommit v{version} without READ on a topic",
            )
        revoke(target, group)
        for version in target.versions(ApiKey.TXN_OFFSET_COMMIT):
            expect_equal(
                work.committed(peer, version),
                [GROUP_FAILED] * 2,
                f"TxnOffsetCommit v{version} without READ on the group",
            )
        for version in target.versions(ApiKey.ADD_OFFSETS_TO_TXN):
            expect_equal(
                work.offsets_added(peer, version),
                GROUP_FAILED,
                f"AddOffsetsToTxn v{version} without READ on the group",
            )
        expect_equal(work.produced(peer, 1), 0, "Produce")
        expect_equal(work.ended(peer), 0, "EndTxn")
    work.transactional_id.reached("CompleteCommit")


@REQUIREMENTS.that(
    4,
    "an idempotent producer needs WRITE for each batch, else TOPIC_AUTHORIZATION_FAILED; a "
    "rejected sequence is still the next one",
    source="KIP-679; KafkaApis",
)
def idempotent(target: Target) -> None:
    require_authorizer(target)
    topic, other = target.topic().name, target.topic().name
    may_write = rule(topic, WRITE)
    anywhere = rule(CLUSTER_NAME, IDEMPOTENT_WRITE, resource=CLUSTER)
    producer_id, epoch = target.producer_id()

    def error(peer: Peer, sequence: int, version: int = 9) -> int:
        return produce(
            peer,
            topic,
            batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence),
            version,
        ).error_code

    def id_error(peer: Peer) -> int:
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
        return with_retries(
            lambda: peer.ask(asked, 4, InitProducerIdResponse),
            lambda answer: answer.error_code,
            BUSY,
        ).error_code

    with ruled(target, may_write, anywhere) as peer:
        expect_equal(
            (id_error(peer), error(peer, 0)), (0, 0), "InitProducerId, Produce with both ACLs"
        )
        revoke(target, anywhere)
        expect_equal(
            (id_error(peer), error(peer, 1)),
            (0, 0),
            "InitProducerId, Produce without IDEMPOTENT_WRITE",
        )
        revoke(target, may_write)
        expect_equal(id_error(peer), CLUSTER_FAILED, "InitProducerId without WRITE")
        for version in produce_versions(target):
            expect_equal(error(peer, 2, version), TOPIC_FAILED, f"Produce v{version} without WRITE")
        create(target, anywhere)
        expect_equal(
            (id_error(peer), error(peer, 2)),
            (0, TOPIC_FAILED),
            "InitProducerId, Produce with IDEMPOTENT_WRITE alone",
        )
        create(target, may_write)
        row = produce(
            peer, topic, batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=2)
        )
        expect_equal(
            (row.error_code, row.base_offset),
            (0, 2),
            "error and offset of the batch that was refused before",
        )
        expect_equal(
            produce(peer, other, batch()).error_code, TOPIC_FAILED, "Produce to another topic"
        )
