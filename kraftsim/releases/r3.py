"""Apache Kafka 3.0 to 3.9: both modes, and the migration from ZooKeeper to KRaft between them.

KRaft is listed from 3.3 on, its first line for production. Until 3.9 every change exists twice, for
brokers in ZooKeeper mode and for the listeners of KRaft. A release is the delta of the one before
it.
"""

from kraftsim.releases.r2 import R2_8
from kraftsim.releases.traits import (
    ABORTABLE_VERIFICATION,
    ANSWERS_READERS_BEHIND,
    BOUNDED_MIN_IN_SYNC_REPLICAS,
    CASELESS_GROUP_STATES,
    CLEAN_SHUTDOWN_EPOCH,
    CLIENT_METRICS,
    DIRECTORY_ASSIGNMENT,
    DIRECTORY_IDS,
    LEADER_RECOVERY,
    METADATA_TRANSACTIONS,
    MIGRATES_BEHIND_A_GATE,
    MIGRATES_FROM_ZOOKEEPER,
    MIGRATES_IN_TRANSACTIONS,
    PREFETCHED_PRODUCER_IDS,
    PRODUCER_ID_EXPIRATION,
    PUBLISHES_REMOTE_SEGMENTS_FIRST,
    REGISTERS_MIGRATION_READINESS,
    RETRIABLE_BLOCK_TIMEOUT,
    RPC_PRODUCER_IDS,
    USER_RIGHTS,
    VERIFIED_TRANSACTIONS,
)
from protocol.api_keys import ApiKey

R3_0 = R2_8.followed_by(
    name="3.0",
    patch="3.0.2",
    about="""Apache Kafka 3.0: brokers obtain producer ids from the controller (KIP-730); tools
        to find hanging transactions (KIP-664).

        A delta of 2.8. Its KRaft, a preview without metadata.version up to 3.2, is not supported
        here.

        Source: the message definitions in the jars of 3.0.2, a running 3.0.2.
        """,
    metadata_version=1,
    metadata_version_name="3.0-IV1",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.LIST_OFFSETS: (0, 7),
        ApiKey.OFFSET_FETCH: (0, 8),
        ApiKey.FIND_COORDINATOR: (0, 4),
        ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
        ApiKey.LIST_TRANSACTIONS: (0, 0),
        ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    },
    gained=(RPC_PRODUCER_IDS,),
)

R3_1 = R3_0.followed_by(
    name="3.1",
    patch="3.1.2",
    about="""Apache Kafka 3.1: Fetch with topic ids (KIP-516).

        A delta of 3.0. Source: the message definitions in the jars of 3.1.2.
        """,
    metadata_version=2,
    metadata_version_name="3.1-IV0",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.FETCH: (0, 13),
        ApiKey.METADATA: (0, 12),
    },
    gained=(),
)

R3_2 = R3_1.followed_by(
    name="3.2",
    patch="3.2.3",
    about="""Apache Kafka 3.2: partitions record that their leader was elected uncleanly and
        recovers (KIP-704).

        A delta of 3.1. Source: the message definitions in the jars of 3.2.3.
        """,
    metadata_version=3,
    metadata_version_name="3.2-IV0",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.LEADER_AND_ISR: (0, 6),
        ApiKey.JOIN_GROUP: (0, 9),
        ApiKey.LEAVE_GROUP: (0, 5),
        ApiKey.DESCRIBE_LOG_DIRS: (0, 3),
        ApiKey.ALTER_PARTITION: (0, 1),
    },
    gained=(LEADER_RECOVERY,),
)

R3_3 = R3_2.followed_by(
    name="3.3",
    patch="3.3.2",
    about="""Apache Kafka 3.3: the first line with production-ready KRaft; InitProducerId waits
        for a block of producer ids.

        In ZooKeeper mode a delta of 3.2; the oldest profile with KRaft, which is listed in full.

        Source: the message definitions in the jars of 3.3.2, and a running 3.3.2.
        """,
    metadata_version=7,
    metadata_version_name="3.3-IV3",
    supported_features={"metadata.version": (1, 7)},
    broker_apis={
        ApiKey.PRODUCE: (0, 9),
        ApiKey.FETCH: (0, 13),
        ApiKey.LIST_OFFSETS: (0, 7),
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
        ApiKey.DESCRIBE_ACLS: (0, 3),
        ApiKey.CREATE_ACLS: (0, 3),
        ApiKey.DELETE_ACLS: (0, 3),
        ApiKey.DESCRIBE_CONFIGS: (0, 4),
        ApiKey.ALTER_CONFIGS: (0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
        ApiKey.UPDATE_FEATURES: (0, 1),
        ApiKey.UNREGISTER_BROKER: (0, 0),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
        ApiKey.DESCRIBE_CLUSTER: (0, 0),
        ApiKey.OFFSET_COMMIT: (0, 8),
        ApiKey.OFFSET_FETCH: (0, 8),
        ApiKey.FIND_COORDINATOR: (0, 4),
        ApiKey.JOIN_GROUP: (0, 9),
        ApiKey.HEARTBEAT: (0, 4),
        ApiKey.LEAVE_GROUP: (0, 5),
        ApiKey.SYNC_GROUP: (0, 5),
        ApiKey.DESCRIBE_GROUPS: (0, 5),
        ApiKey.LIST_GROUPS: (0, 4),
        ApiKey.SASL_HANDSHAKE: (0, 1),
        ApiKey.DELETE_RECORDS: (0, 2),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (0, 4),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 3),
        ApiKey.END_TXN: (0, 3),
        ApiKey.WRITE_TXN_MARKERS: (0, 1),
        ApiKey.TXN_OFFSET_COMMIT: (0, 3),
        ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 2),
        ApiKey.DESCRIBE_LOG_DIRS: (0, 4),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
        ApiKey.DELETE_GROUPS: (0, 2),
        ApiKey.OFFSET_DELETE: (0, 0),
        ApiKey.DESCRIBE_PRODUCERS: (0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
        ApiKey.LIST_TRANSACTIONS: (0, 0),
    },
    controller_apis={
        ApiKey.FETCH: (0, 13),
        ApiKey.API_VERSIONS: (0, 3),
        ApiKey.CREATE_TOPICS: (0, 7),
        ApiKey.DELETE_TOPICS: (0, 6),
        ApiKey.CREATE_PARTITIONS: (0, 3),
        ApiKey.ELECT_LEADERS: (0, 2),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.ALTER_PARTITION: (0, 2),
        ApiKey.VOTE: (0, 0),
        ApiKey.BEGIN_QUORUM_EPOCH: (0, 0),
        ApiKey.END_QUORUM_EPOCH: (0, 0),
        ApiKey.DESCRIBE_QUORUM: (0, 1),
        ApiKey.FETCH_SNAPSHOT: (0, 0),
        ApiKey.ENVELOPE: (0, 0),
        ApiKey.BROKER_REGISTRATION: (0, 0),
        ApiKey.BROKER_HEARTBEAT: (0, 0),
        ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
        ApiKey.DESCRIBE_ACLS: (0, 3),
        ApiKey.CREATE_ACLS: (0, 3),
        ApiKey.DELETE_ACLS: (0, 3),
        ApiKey.ALTER_CONFIGS: (0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
        ApiKey.UPDATE_FEATURES: (0, 1),
        ApiKey.UNREGISTER_BROKER: (0, 0),
        ApiKey.CONTROLLED_SHUTDOWN: (0, 3),
        ApiKey.SASL_HANDSHAKE: (0, 1),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
    },
    zookeeper_apis={
        ApiKey.DESCRIBE_ACLS: (0, 3),
        ApiKey.CREATE_ACLS: (0, 3),
        ApiKey.DELETE_ACLS: (0, 3),
        ApiKey.DESCRIBE_LOG_DIRS: (0, 4),
        ApiKey.CREATE_DELEGATION_TOKEN: (0, 3),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 3),
        ApiKey.ALTER_PARTITION: (0, 2),
        ApiKey.UPDATE_FEATURES: (0, 1),
    },
    gained=(RETRIABLE_BLOCK_TIMEOUT, USER_RIGHTS),
)

R3_4 = R3_3.followed_by(
    name="3.4",
    patch="3.4.1",
    about="""Apache Kafka 3.4: migration from ZooKeeper (KIP-866), and a separate
        producer.id.expiration.ms.

        A delta of 3.3. Source: the message definitions in the jars of 3.4.1.
        """,
    metadata_version=8,
    metadata_version_name="3.4-IV0",
    supported_features={"metadata.version": (1, 8)},
    broker_apis={},
    controller_apis={ApiKey.BROKER_REGISTRATION: (0, 1)},
    zookeeper_apis={
        ApiKey.LEADER_AND_ISR: (0, 7),
        ApiKey.STOP_REPLICA: (0, 4),
        ApiKey.UPDATE_METADATA: (0, 8),
        ApiKey.ENVELOPE: (0, 0),
    },
    gained=(PRODUCER_ID_EXPIRATION, MIGRATES_FROM_ZOOKEEPER),
)

R3_5 = R3_4.followed_by(
    name="3.5",
    patch="3.5.2",
    about="""Apache Kafka 3.5: SCRAM credentials in KRaft; the last line in which InitProducerId
        waits for a block of producer ids.

        A delta of 3.4. Source: the message definitions in the jars of 3.5.2, and a running 3.5.2.
        """,
    metadata_version=11,
    metadata_version_name="3.5-IV2",
    supported_features={"metadata.version": (1, 11)},
    broker_apis={
        ApiKey.FETCH: (0, 15),
        ApiKey.LIST_OFFSETS: (0, 8),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    },
    controller_apis={
        ApiKey.FETCH: (0, 15),
        ApiKey.ALTER_PARTITION: (0, 3),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    },
    zookeeper_apis={
        ApiKey.FETCH: (0, 15),
        ApiKey.LIST_OFFSETS: (0, 8),
        ApiKey.ALTER_PARTITION: (0, 3),
    },
    gained=(MIGRATES_BEHIND_A_GATE,),
)

R3_6 = R3_5.followed_by(
    name="3.6",
    patch="3.6.2",
    about="""Apache Kafka 3.6: InitProducerId never waits for a block, leaders verify
        transactional batches, delegation tokens in KRaft.

        A delta of 3.5. Source: the message definitions in the jars of 3.6.2.
        """,
    metadata_version=14,
    metadata_version_name="3.6-IV2",
    supported_features={"metadata.version": (1, 14)},
    broker_apis={
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 4),
        ApiKey.CREATE_DELEGATION_TOKEN: (0, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 3),
    },
    controller_apis={
        ApiKey.CREATE_DELEGATION_TOKEN: (0, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 3),
    },
    zookeeper_apis={
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 4),
    },
    gained=(
        PREFETCHED_PRODUCER_IDS,
        VERIFIED_TRANSACTIONS,
        METADATA_TRANSACTIONS,
    ),
)

R3_7 = R3_6.followed_by(
    name="3.7",
    patch="3.7.2",
    about="""Apache Kafka 3.7: multiple log directories in KRaft (JBOD), controller
        registration, broker epochs in the clean shutdown file.

        A delta of 3.6. Source: the message definitions in the jars of 3.7.2.
        """,
    metadata_version=19,
    metadata_version_name="3.7-IV4",
    supported_features={"metadata.version": (1, 19)},
    broker_apis={
        ApiKey.PRODUCE: (0, 10),
        ApiKey.FETCH: (0, 16),
        ApiKey.OFFSET_COMMIT: (0, 9),
        ApiKey.OFFSET_FETCH: (0, 9),
        ApiKey.DESCRIBE_CLUSTER: (0, 1),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 0),
        ApiKey.LIST_CONFIG_RESOURCES: (0, 0),
    },
    controller_apis={
        ApiKey.FETCH: (0, 16),
        ApiKey.DESCRIBE_CONFIGS: (0, 4),
        ApiKey.DESCRIBE_CLUSTER: (0, 1),
        ApiKey.BROKER_REGISTRATION: (0, 3),
        ApiKey.BROKER_HEARTBEAT: (0, 1),
        ApiKey.CONTROLLER_REGISTRATION: (0, 0),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0),
    },
    zookeeper_apis={
        ApiKey.PRODUCE: (0, 10),
        ApiKey.FETCH: (0, 16),
        ApiKey.OFFSET_COMMIT: (0, 9),
        ApiKey.OFFSET_FETCH: (0, 9),
        ApiKey.DESCRIBE_CLUSTER: (0, 1),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 0),
    },
    gained=(
        DIRECTORY_ASSIGNMENT,
        BOUNDED_MIN_IN_SYNC_REPLICAS,
        CLEAN_SHUTDOWN_EPOCH,
        DIRECTORY_IDS,
        CLIENT_METRICS,
        PUBLISHES_REMOTE_SEGMENTS_FIRST,
        REGISTERS_MIGRATION_READINESS,
    ),
)

R3_8 = R3_7.followed_by(
    name="3.8",
    patch="3.8.1",
    about="""Apache Kafka 3.8: TRANSACTION_ABORTABLE for clients that know it,
        DescribeTopicPartitions with pagination.

        A delta of 3.7. Source: the message definitions in the jars of 3.8.1.
        """,
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

R3_9 = R3_8.followed_by(
    name="3.9",
    patch="3.9.2",
    about="""Apache Kafka 3.9, the default: the last line with ZooKeeper, the first with dynamic
        quorums.

        A delta of 3.8. Source: the message definitions in the jars of 3.9.2.
        """,
    metadata_version=21,
    metadata_version_name="3.9-IV0",
    supported_features={"kraft.version": (0, 1), "metadata.version": (1, 21)},
    broker_apis={
        ApiKey.FETCH: (0, 17),
        ApiKey.LIST_OFFSETS: (0, 9),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.DESCRIBE_QUORUM: (0, 2),
        ApiKey.ADD_RAFT_VOTER: (0, 0),
        ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    },
    controller_apis={
        ApiKey.FETCH: (0, 17),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.VOTE: (0, 1),
        ApiKey.BEGIN_QUORUM_EPOCH: (0, 1),
        ApiKey.END_QUORUM_EPOCH: (0, 1),
        ApiKey.DESCRIBE_QUORUM: (0, 2),
        ApiKey.FETCH_SNAPSHOT: (0, 1),
        ApiKey.BROKER_REGISTRATION: (0, 4),
        ApiKey.ADD_RAFT_VOTER: (0, 0),
        ApiKey.REMOVE_RAFT_VOTER: (0, 0),
        ApiKey.UPDATE_RAFT_VOTER: (0, 0),
    },
    zookeeper_apis={
        ApiKey.FETCH: (0, 17),
        ApiKey.LIST_OFFSETS: (0, 9),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.API_VERSIONS: (0, 4),
    },
    gained=(MIGRATES_IN_TRANSACTIONS,),
)

RELEASES = (
    R3_0,
    R3_1,
    R3_2,
    R3_3,
    R3_4,
    R3_5,
    R3_6,
    R3_7,
    R3_8,
    R3_9,
)
