"""Authorizer checks of a broker, by API. Requests that it forwards are authorized by the controller.   Source: kafka.server.KafkaApis."""

from typing import TYPE_CHECKING

from kraftsim.node.security import consumer_guards, group_guards, metadata_guards, offset_guards, topic_guards, transaction_guards
from kraftsim.node.security.authorized_operations import pass_on, with_authorized_operations
from kraftsim.node.security.config_guards import authorize_descriptions, authorize_own_alterations
from kraftsim.node.security.exempt import ANY_BROKER, HANDED_ON
from kraftsim.node.security.marker_guards import authorize_markers
from kraftsim.node.security.rights import Guard, GuardTable, cluster_guard
from protocol.acls import AclOperation
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kraftsim.node.broker.broker import Broker

BROKER_GUARDS: "dict[ApiKey, Guard[Broker]]" = {
    ApiKey.PRODUCE: topic_guards.authorize_produce,
    ApiKey.FETCH: topic_guards.authorize_fetch,
    ApiKey.LIST_OFFSETS: topic_guards.LIST_OFFSETS,
    ApiKey.METADATA: with_authorized_operations(metadata_guards.authorize_metadata),
    ApiKey.LEADER_AND_ISR: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.STOP_REPLICA: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.UPDATE_METADATA: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.CONTROLLED_SHUTDOWN: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.ALTER_PARTITION: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.ALLOCATE_PRODUCER_IDS: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.OFFSET_COMMIT: offset_guards.authorize_commit,
    ApiKey.OFFSET_FETCH: offset_guards.authorize_offsets,
    ApiKey.FIND_COORDINATOR: group_guards.authorize_coordinator,
    ApiKey.JOIN_GROUP: group_guards.authorize_group,
    ApiKey.HEARTBEAT: group_guards.authorize_group,
    ApiKey.LEAVE_GROUP: group_guards.authorize_group,
    ApiKey.SYNC_GROUP: group_guards.authorize_sync,
    ApiKey.DESCRIBE_GROUPS: with_authorized_operations(group_guards.authorize_descriptions),
    ApiKey.LIST_GROUPS: group_guards.authorize_list,
    ApiKey.DELETE_GROUPS: group_guards.authorize_group_deletion,
    ApiKey.OFFSET_DELETE: offset_guards.authorize_offset_deletion,
    ApiKey.DELETE_RECORDS: topic_guards.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID: group_guards.authorize_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: topic_guards.authorize_epochs,
    ApiKey.ADD_PARTITIONS_TO_TXN: transaction_guards.authorize_added_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: transaction_guards.authorize_added_offsets,
    ApiKey.END_TXN: transaction_guards.authorize_end,
    ApiKey.WRITE_TXN_MARKERS: authorize_markers,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_guards.authorize_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: with_authorized_operations(consumer_guards.authorize_descriptions),
    ApiKey.TXN_OFFSET_COMMIT: offset_guards.authorize_transactional_commit,
    ApiKey.DESCRIBE_ACLS: cluster_guard(AclOperation.DESCRIBE),
    ApiKey.DESCRIBE_CONFIGS: authorize_descriptions,
    ApiKey.ALTER_CONFIGS: authorize_own_alterations,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: authorize_own_alterations,
    ApiKey.ALTER_REPLICA_LOG_DIRS: cluster_guard(AclOperation.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: cluster_guard(AclOperation.DESCRIBE),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: cluster_guard(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: cluster_guard(AclOperation.DESCRIBE),
    ApiKey.DESCRIBE_PRODUCERS: topic_guards.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS: transaction_guards.authorize_descriptions,
    ApiKey.LIST_TRANSACTIONS: transaction_guards.authorize_list,
    ApiKey.DESCRIBE_CLUSTER: with_authorized_operations(pass_on),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: with_authorized_operations(metadata_guards.authorize_topic_partitions),
    ApiKey.LIST_CONFIG_RESOURCES: cluster_guard(AclOperation.DESCRIBE_CONFIGS),
}
BROKER_TABLE: "GuardTable[Broker]" = GuardTable(BROKER_GUARDS, {**ANY_BROKER, **HANDED_ON})
