"""DescribeProducers (61): the producer state of a partition.

Source: KIP-664; KafkaApis.handleDescribeProducersRequest.
"""

from kraftsim.conformance.batches import batch, produce, wall_ms
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k61_describe_producers import (
    NO_OPEN_TRANSACTION,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)

REQUIREMENTS = Requirements("describe", 3, "DescribeProducers")
HANDLER = "KIP-664; ReplicaManager.activeProducerState"
AN_ID, ANOTHER_ID = 4000, 4001
MINUTE_MS = 60_000


def _ask(
    target: Target, topic: TargetTopic, partition: int = 0
) -> DescribeProducersPartitionResult:
    with target.peer(topic.leader) as peer:
        asked = DescribeProducersRequest(
            topics=[DescribeProducersTopic(name=topic.name, partition_indexes=[partition])]
        )
        answer = peer.ask(
            asked, target.newest(ApiKey.DESCRIBE_PRODUCERS), DescribeProducersResponse
        )
    expect_equal(
        [(found.name, len(found.partitions)) for found in answer.topics],
        [(topic.name, 1)],
        "topics, and how many partitions of each",
    )
    return answer.topics[0].partitions[0]


@REQUIREMENTS.that(
    1,
    "each idempotent producer is returned with its epoch, its last sequence, and its last "
    "timestamp",
    source=HANDLER,
)
def producers(target: Target) -> None:
    topic = target.topic()
    expect_equal(_ask(target, topic).active_producers, [], "producers of an empty partition")
    with target.peer(topic.leader) as peer:
        produce(peer, topic.name, batch(1))
        produce(peer, topic.name, batch(3, producer_id=AN_ID, producer_epoch=0, base_sequence=0))
        produce(peer, topic.name, batch(2, producer_id=AN_ID, producer_epoch=0, base_sequence=3))
        produce(
            peer, topic.name, batch(1, producer_id=ANOTHER_ID, producer_epoch=7, base_sequence=0)
        )
    row = _ask(target, topic)
    expect_error(row.error_code, ErrorCode.NONE, "the partition")
    returned = sorted(
        (found.producer_id, found.producer_epoch, found.last_sequence)
        for found in row.active_producers
    )
    expect_equal(returned, [(AN_ID, 0, 4), (ANOTHER_ID, 7, 0)], "ids, epochs, last sequences")
    for found in row.active_producers:
        expect(
            abs(found.last_timestamp - wall_ms()) < MINUTE_MS,
            f"producer {found.producer_id} wrote at {found.last_timestamp}",
        )
        rest = (found.coordinator_epoch, found.current_txn_start_offset)
        expect_equal(
            rest,
            (-1, NO_OPEN_TRANSACTION),
            f"producer {found.producer_id}: epoch of the coordinator, open transaction",
        )


@REQUIREMENTS.that(
    2, "an unknown topic or partition returns UNKNOWN_TOPIC_OR_PARTITION", source=HANDLER
)
def unknown(target: Target) -> None:
    topic = target.topic()
    absent = TargetTopic(name=target.fresh_name("absent"), topic_id=bytes(16), leader=topic.leader)
    for asked, partition, words in (
        (absent, 0, "This server does not host this topic-partition."),
        (topic, 9, None),
    ):
        row = _ask(target, asked, partition)
        expect_error(
            row.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{asked.name}-{partition}"
        )
        expect_equal(
            (row.partition_index, row.active_producers),
            (partition, []),
            f"{asked.name}-{partition}: number, producers",
        )
        expect_equal(row.error_message, words, f"{asked.name}-{partition}: message")


@REQUIREMENTS.that(3, "an invalid topic name returns INVALID_TOPIC_EXCEPTION", source=HANDLER)
def invalid(target: Target) -> None:
    topic = target.topic()
    for name, why in (
        (
            "a b",
            (
                "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' "
                "and '-'"
            ),
        ),
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
    ):
        row = _ask(target, TargetTopic(name=name, topic_id=bytes(16), leader=topic.leader))
        expect_error(row.error_code, ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r}")
        expect_equal(row.error_message, f"Topic name is invalid: {why}", f"topic {name!r}: message")
