"""Apache Kafka 3.5: the last line whose brokers let InitProducerId wait for a block.

The oldest persona so far, so it is told in full.   Source: the message definitions in the jars of 3.5.2, and a running 3.5.2.
"""

from kraftsim.releases.release import Release
from kraftsim.releases.traits import ACCEPTS_UNKNOWN_PRODUCERS, PRODUCER_ID_EXPIRATION, RETRIABLE_BLOCK_TIMEOUT, RPC_PRODUCER_IDS
from protocol.api_keys import ApiKey

RELEASE = Release(
    name="3.5",
    patch="3.5.2",
    metadata_version=11,
    metadata_version_name="3.5-IV2",
    supported_features={"metadata.version": (1, 11)},
    broker_apis={
        ApiKey.PRODUCE: (0, 9),
        ApiKey.FETCH: (0, 15),
        ApiKey.LIST_OFFSETS: (0, 8),
        ApiKey.METADATA: (0, 12),
        ApiKey.API_VERSIONS: (0, 3),
        ApiKey.CREATE_TOPICS: (0, 7),
        ApiKey.DELETE_TOPICS: (0, 6),
        ApiKey.CREATE_PARTITIONS: (0, 3),
        ApiKey.ELECT_LEADERS: (0, 2),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.INIT_PRODUCER_ID: (0, 4),
        ApiKey.DESCRIBE_QUORUM: (0, 1),
    },
    controller_apis={
        ApiKey.FETCH: (0, 15),
        ApiKey.API_VERSIONS: (0, 3),
        ApiKey.CREATE_TOPICS: (0, 7),
        ApiKey.DELETE_TOPICS: (0, 6),
        ApiKey.CREATE_PARTITIONS: (0, 3),
        ApiKey.ELECT_LEADERS: (0, 2),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.ALTER_PARTITION: (0, 3),
        ApiKey.VOTE: (0, 0),
        ApiKey.BEGIN_QUORUM_EPOCH: (0, 0),
        ApiKey.END_QUORUM_EPOCH: (0, 0),
        ApiKey.DESCRIBE_QUORUM: (0, 1),
        ApiKey.FETCH_SNAPSHOT: (0, 0),
        ApiKey.ENVELOPE: (0, 0),
        ApiKey.BROKER_REGISTRATION: (0, 1),
        ApiKey.BROKER_HEARTBEAT: (0, 0),
        ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    },
    traits=(ACCEPTS_UNKNOWN_PRODUCERS, RPC_PRODUCER_IDS, RETRIABLE_BLOCK_TIMEOUT, PRODUCER_ID_EXPIRATION),
)
