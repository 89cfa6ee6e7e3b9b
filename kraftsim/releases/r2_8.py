"""Apache Kafka 2.8: topic ids (KIP-516), and a producer snapshot for each segment (KAFKA-9393).

A delta of 2.7. Its KRaft, an early-access preview, is not supported here.
Source: the message definitions in the jars of 2.8.2, and a running 2.8.2.
"""

from kraftsim.releases import r2_7
from kraftsim.releases.release import WITHOUT_NUMBER
from kraftsim.releases.traits import SNAPSHOT_OF_EVERY_SEGMENT, TOPIC_IDS, TOPIC_IDS_IN_REQUESTS
from protocol.api_keys import ApiKey

RELEASE = r2_7.RELEASE.followed_by(
    name="2.8",
    patch="2.8.2",
    metadata_version=WITHOUT_NUMBER,
    metadata_version_name="2.8-IV1",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.PRODUCE: (0, 9),
        ApiKey.LIST_OFFSETS: (0, 6),
        ApiKey.METADATA: (0, 11),
        ApiKey.LEADER_AND_ISR: (0, 5),
        ApiKey.UPDATE_METADATA: (0, 7),
        ApiKey.CREATE_TOPICS: (0, 7),
        ApiKey.DELETE_TOPICS: (0, 6),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (0, 4),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 3),
        ApiKey.END_TXN: (0, 3),
        ApiKey.WRITE_TXN_MARKERS: (0, 1),
        ApiKey.DESCRIBE_CONFIGS: (0, 4),
        ApiKey.ALTER_CONFIGS: (0, 2),
        ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 2),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
        ApiKey.DESCRIBE_CLUSTER: (0, 0),
        ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    },
    gained=(
        TOPIC_IDS,
        TOPIC_IDS_IN_REQUESTS,
        SNAPSHOT_OF_EVERY_SEGMENT,
    ),
)
