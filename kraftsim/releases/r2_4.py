"""Apache Kafka 2.4: flexible versions (KIP-482), reassignment API (KIP-455), producer state
outlives deleted records.

A delta of 2.3.   Source: the message definitions in the jars of 2.4.1, and a running 2.4.1.
"""

from kraftsim.releases import r2_3
from kraftsim.releases.release import WITHOUT_NUMBER
from kraftsim.releases.traits import KEEPS_PRODUCERS_OF_DELETED_RECORDS
from protocol.api_keys import ApiKey

RELEASE = r2_3.RELEASE.followed_by(
    name="2.4",
    patch="2.4.1",
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
