"""Apache Kafka 4.0: no ZooKeeper, no old versions of requests (KIP-896), transactions of version 2, groups of the new protocol.

A delta of 3.9.   Source: the message definitions in the jars of 4.0.2.
"""

from kraftsim.releases import r3_9
from kraftsim.releases.traits import (
    ATOMIC_FEATURE_UPDATES,
    PATIENT_TRANSACTIONS,
    PRE_VOTE,
    SHUTDOWN_AT_REGISTRATION,
    TRANSACTIONS_HAVE_EPOCHS,
    WITHOUT_ZOOKEEPER,
)
from protocol.api_keys import ApiKey

RELEASE = r3_9.RELEASE.followed_by(
    name="4.0",
    patch="4.0.2",
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
    gained=(
        PRE_VOTE,
        TRANSACTIONS_HAVE_EPOCHS,
        PATIENT_TRANSACTIONS,
        ATOMIC_FEATURE_UPDATES,
        WITHOUT_ZOOKEEPER,
        SHUTDOWN_AT_REGISTRATION,
    ),
)
