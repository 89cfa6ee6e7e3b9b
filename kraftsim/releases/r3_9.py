"""Apache Kafka 3.9, the default: the last line with ZooKeeper, the first with dynamic quorums.

A delta of 3.5, until the lines between have files of their own.   Source: the message definitions in the jars of 3.9.2, and a running 3.9.2.
"""

from kraftsim.releases import r3_5
from kraftsim.releases.traits import (
    BOUNDED_MIN_IN_SYNC_REPLICAS,
    CLEAN_SHUTDOWN_EPOCH,
    CLIENT_METRICS,
    DIRECTORY_ASSIGNMENT,
    DIRECTORY_IDS,
    METADATA_TRANSACTIONS,
    MIGRATES_IN_TRANSACTIONS,
    PREFETCHED_PRODUCER_IDS,
    VERIFIED_TRANSACTIONS,
)
from protocol.api_keys import ApiKey

RELEASE = r3_5.RELEASE.followed_by(
    name="3.9",
    patch="3.9.2",
    metadata_version=21,
    metadata_version_name="3.9-IV0",
    supported_features={"kraft.version": (0, 1), "metadata.version": (1, 21)},
    broker_apis={
        ApiKey.PRODUCE: (0, 11),
        ApiKey.FETCH: (0, 17),
        ApiKey.LIST_OFFSETS: (0, 9),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.INIT_PRODUCER_ID: (0, 5),
        ApiKey.DESCRIBE_QUORUM: (0, 2),
        ApiKey.ADD_RAFT_VOTER: (0, 0),
        ApiKey.REMOVE_RAFT_VOTER: (0, 0),
        ApiKey.DESCRIBE_CLUSTER: (0, 1),
        ApiKey.LIST_CONFIG_RESOURCES: (0, 0),
        ApiKey.CREATE_DELEGATION_TOKEN: (0, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (0, 3),
    },
    controller_apis={
        ApiKey.FETCH: (0, 17),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.VOTE: (0, 1),
        ApiKey.BEGIN_QUORUM_EPOCH: (0, 1),
        ApiKey.END_QUORUM_EPOCH: (0, 1),
        ApiKey.DESCRIBE_QUORUM: (0, 2),
        ApiKey.FETCH_SNAPSHOT: (0, 1),
        ApiKey.ADD_RAFT_VOTER: (0, 0),
        ApiKey.REMOVE_RAFT_VOTER: (0, 0),
        ApiKey.UPDATE_RAFT_VOTER: (0, 0),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0),
        ApiKey.BROKER_REGISTRATION: (0, 4),
        ApiKey.BROKER_HEARTBEAT: (0, 1),
        ApiKey.DESCRIBE_CLUSTER: (0, 1),
        ApiKey.CONTROLLER_REGISTRATION: (0, 0),
        ApiKey.DESCRIBE_CONFIGS: (0, 4),
        ApiKey.CREATE_DELEGATION_TOKEN: (0, 3),
        ApiKey.RENEW_DELEGATION_TOKEN: (0, 2),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (0, 2),
    },
    gained=(
        PREFETCHED_PRODUCER_IDS,
        VERIFIED_TRANSACTIONS,
        METADATA_TRANSACTIONS,
        DIRECTORY_ASSIGNMENT,
        BOUNDED_MIN_IN_SYNC_REPLICAS,
        CLEAN_SHUTDOWN_EPOCH,
        DIRECTORY_IDS,
        CLIENT_METRICS,
        MIGRATES_IN_TRANSACTIONS,
    ),
)
