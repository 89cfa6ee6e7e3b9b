"""Apache Kafka 4.0 to 4.4, and what is merged for 4.5: KRaft only, without the request versions of
before 2.1 (KIP-896).

transaction.version 2 and the consumer group protocol are the defaults of new clusters. A release is
the delta of the one before it.
"""

from kraftsim.releases.r3 import R3_9
from kraftsim.releases.traits import (
    ADDED_SHARE_PARTITIONS_WHOLE,
    ADMITS_READERS_WITHOUT_EPOCH,
    APPENDS_BY_TOPIC_ID,
    ASSIGNMENT_EPOCHS,
    ASSIGNMENTS_KEEP_ELIGIBLE,
    ATOMIC_FEATURE_UPDATES,
    BOOTSTRAPS_ARE_READ_WHEN_NEEDED,
    CHECKS_EPOCHS_FIRST,
    CHECKS_SESSIONS_PERIODICALLY,
    CLIENT_INSTANCES_END,
    CONSUMER_GROUPS,
    COUNTED_ABANDONED_DELIVERIES,
    COUNTS_COMPLETE_SHARE_RECORDS,
    DECODES_TOKENS_AS_BASE64URL,
    DELAYED_ASSIGNMENTS,
    DISJOINT_PRODUCER_ID_BLOCKS,
    ENDPOINTS_FOR_CONSUMERS,
    EXPLAINED_UNREGISTRATION,
    FORGETS_BEGINNINGS,
    ISOLATION_OF_WHOLE_LISTINGS,
    LOGS_BEGIN_WITH_SEQUENCE_ZERO,
    MEMBERS_DROP_UNSUBSCRIBED,
    MEMBERS_REJOIN,
    MEMBERS_TAKE_BACK,
    MOVES_WAIT_FOR_NEWCOMERS,
    NAMED_DOWNGRADES,
    NEW_ID_AFTER_LAST_TIMEOUT,
    PARSES_SHARE_KEYS,
    PATIENT_TRANSACTIONS,
    PRE_VOTE,
    READERS_STAND_AT_BATCHES,
    REFUSES_SHARE_KEYS,
    RETRIES_LOST_STATE_REQUESTS,
    SETTLED_SHARE_GROUPS,
    SHARE_GROUPS_FIRST,
    SHARE_KEYS_HAVE_COLONS,
    SHARE_OFFSETS_MAKE_GROUPS,
    SHARE_STARTS_ONLY_ADVANCE,
    SHUTDOWN_AT_REGISTRATION,
    STREAMS_ROLES,
    THROTTLED_DELIVERIES,
    TRANSACTIONS_HAVE_EPOCHS,
    TWO_PHASE_COMMIT_RIGHT,
    WITHOUT_ZOOKEEPER,
)
from protocol.api_keys import ApiKey

R4_0 = R3_9.followed_by(
    name="4.0",
    patch="4.0.2",
    about="""Apache Kafka 4.0: no ZooKeeper, no old request versions (KIP-896),
        transaction.version 2, the new consumer group protocol.

        A delta of 3.9. Source: the message definitions in the jars of 4.0.2.
        """,
    metadata_version=25,
    metadata_version_name="4.0-IV3",
    supported_features={
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 25),
        "transaction.version": (0, 2),
    },
    broker_apis={
        ApiKey.PRODUCE: (3, 12),
        ApiKey.FETCH: (4, 17),
        ApiKey.LIST_OFFSETS: (1, 10),
        ApiKey.METADATA: (0, 13),
        ApiKey.OFFSET_COMMIT: (2, 9),
        ApiKey.OFFSET_FETCH: (1, 9),
        ApiKey.DESCRIBE_GROUPS: (0, 6),
        ApiKey.CREATE_TOPICS: (2, 7),
        ApiKey.DELETE_TOPICS: (1, 6),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
        ApiKey.END_TXN: (0, 5),
        ApiKey.WRITE_TXN_MARKERS: (1, 1),
        ApiKey.TXN_OFFSET_COMMIT: (0, 5),
        ApiKey.DESCRIBE_ACLS: (1, 3),
        ApiKey.CREATE_ACLS: (1, 3),
        ApiKey.DELETE_ACLS: (1, 3),
        ApiKey.DESCRIBE_CONFIGS: (1, 4),
        ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
        ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
        ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
        ApiKey.UPDATE_FEATURES: (0, 2),
        ApiKey.DESCRIBE_CLUSTER: (0, 2),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    },
    controller_apis={
        ApiKey.FETCH: (4, 17),
        ApiKey.CREATE_TOPICS: (2, 7),
        ApiKey.DELETE_TOPICS: (1, 6),
        ApiKey.DESCRIBE_ACLS: (1, 3),
        ApiKey.CREATE_ACLS: (1, 3),
        ApiKey.DELETE_ACLS: (1, 3),
        ApiKey.DESCRIBE_CONFIGS: (1, 4),
        ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
        ApiKey.VOTE: (0, 2),
        ApiKey.ALTER_PARTITION: (2, 3),
        ApiKey.UPDATE_FEATURES: (0, 2),
        ApiKey.DESCRIBE_CLUSTER: (0, 2),
    },
    lost_apis=(ApiKey.CONTROLLED_SHUTDOWN,),
    loses_zookeeper=True,
    gained=(
        PRE_VOTE,
        TRANSACTIONS_HAVE_EPOCHS,
        CHECKS_EPOCHS_FIRST,
        PATIENT_TRANSACTIONS,
        ATOMIC_FEATURE_UPDATES,
        CONSUMER_GROUPS,
        MEMBERS_TAKE_BACK,
        ENDPOINTS_FOR_CONSUMERS,
        READERS_STAND_AT_BATCHES,
        WITHOUT_ZOOKEEPER,
        CHECKS_SESSIONS_PERIODICALLY,
        CLIENT_INSTANCES_END,
        SHUTDOWN_AT_REGISTRATION,
        EXPLAINED_UNREGISTRATION,
        BOOTSTRAPS_ARE_READ_WHEN_NEEDED,
        ISOLATION_OF_WHOLE_LISTINGS,
        REFUSES_SHARE_KEYS,
    ),
)

R4_1 = R4_0.followed_by(
    name="4.1",
    patch="4.1.2",
    about="""Apache Kafka 4.1: Produce with topic ids, eligible leader replicas (KIP-966).

        A delta of 4.0. Source: the message definitions in the jars of 4.1.2.
        """,
    metadata_version=27,
    metadata_version_name="4.1-IV1",
    supported_features={
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 27),
        "share.version": (0, 1),
        "transaction.version": (0, 2),
    },
    broker_apis={
        ApiKey.PRODUCE: (3, 13),
        ApiKey.FETCH: (4, 18),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
        ApiKey.LIST_TRANSACTIONS: (0, 2),
        ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
        ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
        ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
        ApiKey.SHARE_FETCH: (1, 1),
        ApiKey.SHARE_ACKNOWLEDGE: (1, 1),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
        ApiKey.WRITE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 0),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 0),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
    },
    controller_apis={
        ApiKey.FETCH: (4, 18),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    },
    gained=(
        APPENDS_BY_TOPIC_ID,
        FORGETS_BEGINNINGS,
        PARSES_SHARE_KEYS,
        SHARE_GROUPS_FIRST,
        TWO_PHASE_COMMIT_RIGHT,
    ),
)

R4_2 = R4_1.followed_by(
    name="4.2",
    patch="4.2.2",
    about="""Apache Kafka 4.2: OffsetCommit and OffsetFetch with topic ids.

        A delta of 4.1. Source: the message definitions in the jars of 4.2.2.
        """,
    metadata_version=29,
    metadata_version_name="4.2-IV1",
    supported_features={
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 29),
        "share.version": (0, 1),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    },
    broker_apis={
        ApiKey.LIST_OFFSETS: (1, 11),
        ApiKey.OFFSET_COMMIT: (2, 10),
        ApiKey.OFFSET_FETCH: (1, 10),
        ApiKey.WRITE_TXN_MARKERS: (1, 2),
        ApiKey.SHARE_FETCH: (1, 2),
        ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
        ApiKey.ADD_RAFT_VOTER: (0, 1),
        ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1),
        ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 0),
        ApiKey.STREAMS_GROUP_DESCRIBE: (0, 0),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    },
    controller_apis={
        ApiKey.ADD_RAFT_VOTER: (0, 1),
    },
    gained=(
        COUNTED_ABANDONED_DELIVERIES,
        COUNTS_COMPLETE_SHARE_RECORDS,
        DECODES_TOKENS_AS_BASE64URL,
        MEMBERS_DROP_UNSUBSCRIBED,
        MEMBERS_REJOIN,
        RETRIES_LOST_STATE_REQUESTS,
        SHARE_KEYS_HAVE_COLONS,
        SHARE_OFFSETS_MAKE_GROUPS,
        THROTTLED_DELIVERIES,
    ),
)

R4_3 = R4_2.followed_by(
    name="4.3",
    patch="4.3.1",
    about="""Apache Kafka 4.3: cordoned log directories (KIP-1066); offset commits in the member
        epoch of the assignment (KIP-1251).

        A delta of 4.2. Source: the message definitions in the jars of 4.3.1.
        """,
    metadata_version=30,
    metadata_version_name="4.3-IV0",
    supported_features={
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 30),
        "share.version": (0, 1),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    },
    broker_apis={
        ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    },
    controller_apis={
        ApiKey.BROKER_HEARTBEAT: (0, 2),
    },
    gained=(
        ADMITS_READERS_WITHOUT_EPOCH,
        MOVES_WAIT_FOR_NEWCOMERS,
        ASSIGNMENTS_KEEP_ELIGIBLE,
        DELAYED_ASSIGNMENTS,
        ASSIGNMENT_EPOCHS,
        NAMED_DOWNGRADES,
        NEW_ID_AFTER_LAST_TIMEOUT,
        DISJOINT_PRODUCER_ID_BLOCKS,
    ),
)

R4_4 = R4_3.followed_by(
    name="4.4",
    patch="4.4.0",
    about="""Apache Kafka 4.4, the newest: ApiVersions names the intended cluster and node,
        UnregisterController.

        A delta of 4.3. Source: the message definitions in the jars of 4.4.0.
        """,
    metadata_version=33,
    metadata_version_name="4.4-IV2",
    supported_features={
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 33),
        "share.version": (0, 2),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    },
    broker_apis={
        ApiKey.API_VERSIONS: (0, 5),
        ApiKey.TXN_OFFSET_COMMIT: (0, 6),
        ApiKey.DELETE_GROUPS: (0, 3),
        ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 1),
        ApiKey.STREAMS_GROUP_DESCRIBE: (0, 1),
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (0, 0),
        ApiKey.UNREGISTER_CONTROLLER: (0, 0),
    },
    controller_apis={
        ApiKey.API_VERSIONS: (0, 5),
        ApiKey.UNREGISTER_CONTROLLER: (0, 0),
    },
    gained=(
        ADDED_SHARE_PARTITIONS_WHOLE,
        SETTLED_SHARE_GROUPS,
        SHARE_STARTS_ONLY_ADVANCE,
        STREAMS_ROLES,
    ),
)

TRUNK = R4_4.followed_by(
    name="trunk",
    patch="4.5.0-SNAPSHOT",
    about="""What is merged for Apache Kafka 4.5, not released: a log that never had a record begins
        with sequence 0 (KAFKA-15591).

        A delta of 4.4. Source: the pull requests of the tickets, of which no binary could be asked;
        23234 for KAFKA-15591. The level 4.5-IV0 exists, is for tests only (23244), and is therefore
        not supported. keepPreparedTxn of KIP-939 is not merged (21735).
        """,
    metadata_version=R4_4.metadata_version,
    metadata_version_name=R4_4.metadata_version_name,
    supported_features=R4_4.supported_features,
    broker_apis={},
    controller_apis={},
    gained=(LOGS_BEGIN_WITH_SEQUENCE_ZERO,),
    comes_as="4.5",
)

RELEASES = (
    R4_0,
    R4_1,
    R4_2,
    R4_3,
    R4_4,
    TRUNK,
)
