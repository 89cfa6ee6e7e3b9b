"""Apache Kafka 2.3: metadata in ZooKeeper; a leader accepts only the first batch of a producer
whose state it does not have.

The oldest profile, so it is listed in full.
Source: the message definitions in the jars of 2.3.1, and a running 2.3.1.
"""

from kraftsim.releases.release import WITHOUT_NUMBER, Release
from protocol.api_keys import ApiKey

RELEASE = Release(
    name="2.3",
    patch="2.3.1",
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
