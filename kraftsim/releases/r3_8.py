"""Apache Kafka 3.8: TRANSACTION_ABORTABLE for clients that know it, DescribeTopicPartitions with
pagination.

A delta of 3.7.   Source: the message definitions in the jars of 3.8.1.
"""

from kraftsim.releases import r3_7
from kraftsim.releases.traits import (
    ABORTABLE_VERIFICATION,
    ANSWERS_READERS_BEHIND,
    CASELESS_GROUP_STATES,
)
from protocol.api_keys import ApiKey

RELEASE = r3_7.RELEASE.followed_by(
    name="3.8",
    patch="3.8.1",
    metadata_version=20,
    metadata_version_name="3.8-IV0",
    supported_features={"metadata.version": (1, 20)},
    broker_apis={
        ApiKey.PRODUCE: (0, 11),
        ApiKey.FIND_COORDINATOR: (0, 5),
        ApiKey.LIST_GROUPS: (0, 5),
        ApiKey.INIT_PRODUCER_ID: (0, 5),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.END_TXN: (0, 4),
        ApiKey.TXN_OFFSET_COMMIT: (0, 4),
        ApiKey.LIST_TRANSACTIONS: (0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 0),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    },
    controller_apis={},
    zookeeper_apis={
        ApiKey.PRODUCE: (0, 11),
        ApiKey.FIND_COORDINATOR: (0, 5),
        ApiKey.LIST_GROUPS: (0, 5),
        ApiKey.INIT_PRODUCER_ID: (0, 5),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.END_TXN: (0, 4),
        ApiKey.TXN_OFFSET_COMMIT: (0, 4),
        ApiKey.LIST_TRANSACTIONS: (0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 0),
    },
    gained=(CASELESS_GROUP_STATES, ABORTABLE_VERIFICATION, ANSWERS_READERS_BEHIND),
)
