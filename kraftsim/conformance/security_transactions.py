"""ACLs for transactions: on the transactional id, its topics and groups, and for requests of
brokers.

Source: KIP-98, KIP-664, KIP-890; KafkaApis.
"""

from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.group_client import find_coordinator
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.security_rights import GROUP, TRANSACTION, require_authorizer, rule, ruled
from kraftsim.conformance.target import Target
from kraftsim.conformance.transactional_id import (
    Partitions,
    Producer,
    TransactionalId,
    partitions_of,
    topics_of,
)
from protocol.acls import AclOperation
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
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

REQUIREMENTS = Requirements("security", 3, "ACLs for transactions")
HANDLERS = "KafkaApis"
WRITE, READ, DESCRIBE = AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE
FAILED = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
OF_PRODUCERS, OF_BROKERS, VERSION = (0, 1, 2, 3), 4, 3


def added(
    peer: Peer,
    transactional_id: TransactionalId,
    producer: Producer,
    partitions: Partitions,
    version: int = VERSION,
) -> list[int]:
    """Add partitions as the connected principal; return the errors in their order."""
    asked = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id.name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=topics_of(partitions),
    )
    answer = peer.ask(asked, version, AddPartitionsToTxnResponse)
    found = {
        (topic.name, row.partition_index): row
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }
    return [found[each].partition_error_code for each in partitions]


def offsets_added(
    peer: Peer, transactional_id: TransactionalId, producer: Producer, group_id: str
) -> int:
    """Add the offsets of a group as the connected principal."""
    asked = AddOffsetsToTxnRequest(
        transactional_id=transactional_id.name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=group_id,
    )
    return peer.ask(asked, VERSION, AddOffsetsToTxnResponse).error_code


def ended(peer: Peer, transactional_id: TransactionalId, producer: Producer) -> int:
    """Commit as the connected principal."""
    asked = EndTxnRequest(
        transactional_id=transactional_id.name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=True,
    )
    return peer.ask(asked, VERSION, EndTxnResponse).error_code


def listed(peer: Peer, producer: Producer) -> list[str]:
    """List the ids of a producer as the connected principal."""
    answer = peer.ask(
        ListTransactionsRequest(producer_id_filters=[producer[0]]), 0, ListTransactionsResponse
    )
    return [row.transactional_id for row in answer.transaction_states]


def _begun(target: Target, partitions: int = 1) -> tuple[TransactionalId, Producer, str]:
    """A transaction that a super user started."""
    require_authorizer(target)
    topic, transactional_id = target.topic(partitions), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    return transactional_id, producer, topic.name


@REQUIREMENTS.that(
    1,
    "without WRITE on the transactional id AddPartitionsToTxn, AddOffsetsToTxn and EndTxn return "
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    source="KIP-98; " + HANDLERS,
)
def without_the_id(target: Target) -> None:
    transactional_id, producer, topic = _begun(target, 2)
    group_id = target.fresh_name("group")
    rules = (
        rule(topic, WRITE),
        rule(group_id, READ, resource=GROUP),
        rule(transactional_id.name, DESCRIBE, resource=TRANSACTION),
    )
    with ruled(target, *rules) as peer:
        for version in OF_PRODUCERS:
            errors = added(peer, transactional_id, producer, [(topic, 0), (topic, 1)], version)
            expect_equal(errors, [FAILED, FAILED], f"AddPartitionsToTxn version {version}")
        expect_equal(
            offsets_added(peer, transactional_id, producer, group_id), FAILED, "AddOffsetsToTxn"
        )
        expect_equal(ended(peer, transactional_id, producer), FAILED, "EndTxn")
    expect_equal(transactional_id.described().transaction_state, "Ongoing", "state")


@REQUIREMENTS.that(
    2,
    "a topic without WRITE returns TOPIC_AUTHORIZATION_FAILED, and all others "
    "OPERATION_NOT_ATTEMPTED",
    source="KIP-98; " + HANDLERS,
)
def without_the_topic(target: Target) -> None:
    transactional_id, producer, topic = _begun(target, 2)
    other = target.topic().name
    missing = target.fresh_name("missing")
    with ruled(
        target, rule(transactional_id.name, WRITE, resource=TRANSACTION), rule(topic, WRITE)
    ) as peer:
        for version in OF_PRODUCERS:
            errors = added(
                peer, transactional_id, producer, [(topic, 1), (other, 0), (missing, 0)], version
            )
            expect_equal(errors, [55, 29, 29], f"version {version}")
    expect_equal(partitions_of(transactional_id.described()), [(topic, 0)], "partitions")


@REQUIREMENTS.that(
    3,
    "with WRITE on the transactional id and topic a producer can add partitions, and end the "
    "transaction",
    source="KIP-98; " + HANDLERS,
)
def with_both(target: Target) -> None:
    transactional_id, producer, topic = _begun(target, 2)
    with ruled(
        target, rule(transactional_id.name, WRITE, resource=TRANSACTION), rule(topic, WRITE)
    ) as peer:
        expect_equal(
            added(peer, transactional_id, producer, [(topic, 1)]), [0], "AddPartitionsToTxn"
        )
        expect_equal(ended(peer, transactional_id, producer), 0, "EndTxn")
    transactional_id.reached("CompleteCommit")


@REQUIREMENTS.that(
    4,
    "the offsets of a group without READ return GROUP_AUTHORIZATION_FAILED",
    source="KIP-98; " + HANDLERS,
)
def without_the_group(target: Target) -> None:
    transactional_id, producer, _ = _begun(target)
    group_id = target.fresh_name("group")
    find_coordinator(target, group_id)
    may_write = rule(transactional_id.name, WRITE, resource=TRANSACTION)
    with ruled(target, may_write) as peer:
        expect_error(
            offsets_added(peer, transactional_id, producer, group_id),
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            "without READ",
        )
    with ruled(target, may_write, rule(group_id, READ, resource=GROUP)) as peer:
        expect_error(
            offsets_added(peer, transactional_id, producer, group_id), ErrorCode.NONE, "with READ"
        )


@REQUIREMENTS.that(
    5,
    "a client that is no broker may not send broker versions: CLUSTER_AUTHORIZATION_FAILED for "
    "the whole request",
    source="KIP-890; " + HANDLERS,
    since="3.8",
)
def not_a_broker(target: Target) -> None:
    transactional_id, producer, topic = _begun(target)
    with ruled(
        target, rule(transactional_id.name, WRITE, resource=TRANSACTION), rule(topic, WRITE)
    ) as peer:
        for version in target.versions(ApiKey.ADD_PARTITIONS_TO_TXN, since=OF_BROKERS):
            asked = AddPartitionsToTxnRequest(
                transactions=[transactional_id.row(producer, [(topic, 0)], verifies=True)]
            )
            answer = peer.ask(asked, version, AddPartitionsToTxnResponse)
            returned = (answer.error_code, answer.results_by_transaction)
            expect_equal(
                returned,
                (int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), []),
                f"version {version}: error, results",
            )


@REQUIREMENTS.that(
    6,
    "transactional ids without DESCRIBE return TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and are "
    "not listed",
    source="KIP-664; " + HANDLERS,
)
def not_described(target: Target) -> None:
    shown, producer, topic = _begun(target)
    hidden, other, _ = _begun(target)
    with ruled(
        target, rule(shown.name, DESCRIBE, resource=TRANSACTION), rule(topic, DESCRIBE)
    ) as peer:
        asked = DescribeTransactionsRequest(transactional_ids=[hidden.name, shown.name])
        rows = {
            row.transactional_id: row
            for row in peer.ask(asked, 0, DescribeTransactionsResponse).transaction_states
        }
        expect_equal(
            {name: row.error_code for name, row in rows.items()},
            {hidden.name: FAILED, shown.name: 0},
            "errors",
        )
        expect_equal(partitions_of(rows[shown.name]), [(topic, 0)], "partitions")
        expect_equal(
            (listed(peer, producer), listed(peer, other)), ([shown.name], []), "ids that are listed"
        )


@REQUIREMENTS.that(
    7,
    "topics without DESCRIBE are left out of the description of a transaction",
    source="KIP-664; " + HANDLERS,
)
def hidden_topics(target: Target) -> None:
    transactional_id, producer, topic = _begun(target)
    other = target.topic().name
    transactional_id.begin(producer, [(other, 0)])
    with ruled(
        target, rule(transactional_id.name, DESCRIBE, resource=TRANSACTION), rule(other, DESCRIBE)
    ) as peer:
        asked = DescribeTransactionsRequest(transactional_ids=[transactional_id.name])
        row = peer.ask(asked, 0, DescribeTransactionsResponse).transaction_states[0]
        expect_equal((row.error_code, partitions_of(row)), (0, [(other, 0)]), "error, partitions")
    expect_equal(
        len(partitions_of(transactional_id.described())),
        2,
        f"partitions that a super user sees, {topic} among them",
    )
