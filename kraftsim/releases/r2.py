"""Apache Kafka 2.3 to 2.8: metadata in ZooKeeper.

These lines brought what kraftsim compares designs of: producer state that outlives deleted records
(2.4), epochs that producers bump themselves and groups that fence them (2.5), and leaders whose ISR
changes go through the controller (2.7). A release is the delta of the one before it.
"""

from kraftsim.releases.release import WITHOUT_NUMBER, Release
from kraftsim.releases.traits import (
    ACCEPTS_UNKNOWN_PRODUCERS,
    ALTERED_PARTITIONS,
    FEATURE_ZNODE,
    KEEPS_PRODUCERS_OF_DELETED_RECORDS,
    SNAPSHOT_OF_EVERY_SEGMENT,
    TOPIC_IDS,
    TOPIC_IDS_IN_REQUESTS,
)
from protocol.api_keys import ApiKey

R2_3 = Release(
    name="2.3",
    patch="2.3.1",
    about="""Apache Kafka 2.3: metadata in ZooKeeper; a leader accepts only the first batch of a
        producer whose state it does not have.

        The oldest profile, so it is listed in full.

        Source: the message definitions in the jars of 2.3.1, and a running 2.3.1.
        """,
    metadata_version=WITHOUT_NUMBER,
    metadata_version_name="2.3-IV1",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.PRODUCE: (0, 7),
        ApiKey.FETCH: (0, 11),
        ApiKey.LIST_OFFSETS: (0, 5),
        ApiKey.METADATA: (0, 8),
        ApiKey.LEADER_AND_ISR: (0, 2),
        ApiKey.STOP_REPLICA: (0, 1),
        ApiKey.UPDATE_METADATA: (0, 5),
        ApiKey.CONTROLLED_SHUTDOWN: (0, 2),
        ApiKey.OFFSET_COMMIT: (0, 7),
        ApiKey.OFFSET_FETCH: (0, 5),
        ApiKey.FIND_COORDINATOR: (0, 2),
        ApiKey.JOIN_GROUP: (0, 5),
        ApiKey.HEARTBEAT: (0, 3),
        ApiKey.LEAVE_GROUP: (0, 2),
        ApiKey.SYNC_GROUP: (0, 3),
        ApiKey.DESCRIBE_GROUPS: (0, 3),
        ApiKey.LIST_GROUPS: (0, 2),
        ApiKey.SASL_HANDSHAKE: (0, 1),
        ApiKey.API_VERSIONS: (0, 2),
        ApiKey.CREATE_TOPICS: (0, 3),
        ApiKey.DELETE_TOPICS: (0, 3),
        ApiKey.DELETE_RECORDS: (0, 1),
        ApiKey.INIT_PRODUCER_ID: (0, 1),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (0, 3),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 1),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 1),
        ApiKey.END_TXN: (0, 1),
        ApiKey.WRITE_TXN_MARKERS: (0, 0),
        ApiKey.TXN_OFFSET_COMMIT: (0, 2),
        ApiKey.DESCRIBE_ACLS: (0, 1),
        ApiKey.CREATE_ACLS: (0, 1),
        ApiKey.DELETE_ACLS: (0, 1),
        ApiKey.DESCRIBE_CONFIGS: (0, 2),
        ApiKey.ALTER_CONFIGS: (0, 1),
        ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 1),
        ApiKey.DESCRIBE_LOG_DIRS: (0, 1),
        ApiKey.SASL_AUTHENTICATE: (0, 1),
        ApiKey.CREATE_PARTITIONS: (0, 1),
        ApiKey.CREATE_DELEGATION_TOKEN: (0, 1),
        ApiKey.RENEW_DELEGATION_TOKEN: (0, 1),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 1),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 1),
        ApiKey.DELETE_GROUPS: (0, 1),
        ApiKey.ELECT_LEADERS: (0, 0),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 0),
    },
    traits=(),
)

R2_4 = R2_3.followed_by(
    name="2.4",
    patch="2.4.1",
    about="""Apache Kafka 2.4: flexible versions (KIP-482), reassignment API (KIP-455), producer
        state outlives deleted records.

        A delta of 2.3. Source: the message definitions in the jars of 2.4.1, and a running 2.4.1.
        """,
    metadata_version=WITHOUT_NUMBER,
    metadata_version_name="2.4-IV1",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.PRODUCE: (0, 8),
        ApiKey.METADATA: (0, 9),
        ApiKey.LEADER_AND_ISR: (0, 4),
        ApiKey.STOP_REPLICA: (0, 2),
        ApiKey.UPDATE_METADATA: (0, 6),
        ApiKey.CONTROLLED_SHUTDOWN: (0, 3),
        ApiKey.OFFSET_COMMIT: (0, 8),
        ApiKey.OFFSET_FETCH: (0, 6),
        ApiKey.FIND_COORDINATOR: (0, 3),
        ApiKey.JOIN_GROUP: (0, 6),
        ApiKey.HEARTBEAT: (0, 4),
        ApiKey.LEAVE_GROUP: (0, 4),
        ApiKey.SYNC_GROUP: (0, 4),
        ApiKey.DESCRIBE_GROUPS: (0, 5),
        ApiKey.LIST_GROUPS: (0, 3),
        ApiKey.API_VERSIONS: (0, 3),
        ApiKey.CREATE_TOPICS: (0, 5),
        ApiKey.DELETE_TOPICS: (0, 4),
        ApiKey.INIT_PRODUCER_ID: (0, 2),
        ApiKey.CREATE_DELEGATION_TOKEN: (0, 2),
        ApiKey.DELETE_GROUPS: (0, 2),
        ApiKey.ELECT_LEADERS: (0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.OFFSET_DELETE: (0, 0),
    },
    gained=(KEEPS_PRODUCERS_OF_DELETED_RECORDS,),
)

R2_5 = R2_4.followed_by(
    name="2.5",
    patch="2.5.1",
    about="""Apache Kafka 2.5: producers recover from errors by an epoch bump (KIP-360), and
        groups fence producers on offset commits (KIP-447).

        A delta of 2.4. Source: the message definitions in the jars of 2.5.1, and a running 2.5.1.
        """,
    metadata_version=WITHOUT_NUMBER,
    metadata_version_name="2.5-IV0",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.OFFSET_FETCH: (0, 7),
        ApiKey.JOIN_GROUP: (0, 7),
        ApiKey.SYNC_GROUP: (0, 5),
        ApiKey.INIT_PRODUCER_ID: (0, 3),
        ApiKey.TXN_OFFSET_COMMIT: (0, 3),
        ApiKey.DESCRIBE_ACLS: (0, 2),
        ApiKey.CREATE_ACLS: (0, 2),
        ApiKey.DELETE_ACLS: (0, 2),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
        ApiKey.CREATE_PARTITIONS: (0, 2),
        ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 2),
    },
    gained=(ACCEPTS_UNKNOWN_PRODUCERS,),
)

R2_6 = R2_5.followed_by(
    name="2.6",
    patch="2.6.3",
    about="""Apache Kafka 2.6: client quota APIs (KIP-546).

        A delta of 2.5. Source: the message definitions in the jars of 2.6.3.
        """,
    metadata_version=WITHOUT_NUMBER,
    metadata_version_name="2.6-IV0",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.STOP_REPLICA: (0, 3),
        ApiKey.LIST_GROUPS: (0, 4),
        ApiKey.DELETE_RECORDS: (0, 2),
        ApiKey.DESCRIBE_CONFIGS: (0, 3),
        ApiKey.DESCRIBE_LOG_DIRS: (0, 2),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 0),
        ApiKey.ALTER_CLIENT_QUOTAS: (0, 0),
    },
    gained=(),
)

R2_7 = R2_6.followed_by(
    name="2.7",
    patch="2.7.2",
    about="""Apache Kafka 2.7: AlterIsr (KIP-497), versioned features (KIP-584), PRODUCER_FENCED
        for fenced producers (KIP-588).

        A delta of 2.6. Source: the message definitions in the jars of 2.7.2.
        """,
    metadata_version=WITHOUT_NUMBER,
    metadata_version_name="2.7-IV2",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.FETCH: (0, 12),
        ApiKey.CREATE_TOPICS: (0, 6),
        ApiKey.DELETE_TOPICS: (0, 5),
        ApiKey.INIT_PRODUCER_ID: (0, 4),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 2),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 2),
        ApiKey.END_TXN: (0, 2),
        ApiKey.CREATE_PARTITIONS: (0, 3),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
        ApiKey.ALTER_PARTITION: (0, 0),
        ApiKey.UPDATE_FEATURES: (0, 0),
    },
    gained=(
        FEATURE_ZNODE,
        ALTERED_PARTITIONS,
    ),
)

R2_8 = R2_7.followed_by(
    name="2.8",
    patch="2.8.2",
    about="""Apache Kafka 2.8: topic ids (KIP-516), and a producer snapshot for each segment
        (KAFKA-9393).

        A delta of 2.7. Its KRaft, an early-access preview, is not supported here.

        Source: the message definitions in the jars of 2.8.2, and a running 2.8.2.
        """,
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

RELEASES = (
    R2_3,
    R2_4,
    R2_5,
    R2_6,
    R2_7,
    R2_8,
)
