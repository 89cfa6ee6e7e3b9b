"""Apache Kafka 3.7: multiple log directories in KRaft (JBOD), controller registration, broker
epochs in the clean shutdown file.

A delta of 3.6.   Source: the message definitions in the jars of 3.7.2.
"""

from kraftsim.releases import r3_6
from kraftsim.releases.traits import (
    BOUNDED_MIN_IN_SYNC_REPLICAS,
    CLEAN_SHUTDOWN_EPOCH,
    CLIENT_METRICS,
    DIRECTORY_ASSIGNMENT,
    DIRECTORY_IDS,
    PUBLISHES_REMOTE_SEGMENTS_FIRST,
    REGISTERS_MIGRATION_READINESS,
)
from protocol.api_keys import ApiKey

RELEASE = r3_6.RELEASE.followed_by(
    name="3.7",
    patch="3.7.2",
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
