"""Authorizer checks of a broker, by API.

Requests that it forwards are authorized by the controller.

Source: kafka.server.KafkaApis.
"""

from typing import Final, cast

from kraftsim.server.call import Answer, Deferred
from kraftsim.server.forwarding import FORWARDED
from kraftsim.server.rules_authorization import CLUSTER_NAME
from kraftsim.server.security import (
    group_guards,
    share_group_guards,
    streams_guards,
    topic_guards,
    transaction_guards,
)
from kraftsim.server.security.config_guards import (
    authorize_alterations,
    authorize_descriptions,
    authorize_own_alterations,
)
from kraftsim.server.security.controller_guards import (
    CONTROLLER_GUARDS,
    creation_guard,
    deletion_guard,
)
from kraftsim.server.security.rights import (
    ANY_BROKER,
    HANDED_ON,
    AskedRights,
    Guard,
    GuardedBroker,
    GuardTable,
    cluster_guard,
    completed,
)
from protocol.acls import AclOperation, AclResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.schema import Message

# --------------------------------------------------------------------------------------------------
# Authorizer check of WriteTxnMarkers: brokers, and administrators with ALTER on the cluster
# (KIP-664).
#
# Source: kafka.server.KafkaApis.handleWriteTxnMarkersRequest.


def authorize_markers(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Either right is sufficient."""
    if asked.may_on_cluster(AclOperation.ALTER) or asked.may_on_cluster(
        AclOperation.CLUSTER_ACTION
    ):
        return asked.pass_on()
    return asked.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


# --------------------------------------------------------------------------------------------------
# Authorized operations in responses: reduces the operations of a resource to those that the client
# is authorized for.
#
# Source: KIP-430, kafka.server.AuthHelper.authorizedOperations.

NOT_ASKED_FOR: Final = -(2**31)
OPERATIONS: Final = tuple(AclOperation)


def with_authorized_operations(look: Guard[GuardedBroker]) -> Guard[GuardedBroker]:
    """Return a guard whose responses list only authorized operations."""

    def look_and_filter(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
        return completed(asked.call, look(asked), lambda answer: _filter_operations(asked, answer))

    return look_and_filter


def pass_on(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Every client is served."""
    return asked.pass_on()


def _filter_operations(asked: AskedRights[GuardedBroker], answer: Message) -> None:
    operations = getattr(answer, "cluster_authorized_operations", NOT_ASKED_FOR)
    if operations != NOT_ASKED_FOR:
        may_look = asked.may_on_cluster(AclOperation.DESCRIBE)
        answer.cluster_authorized_operations = (
            _left(asked, operations, AclResourceType.CLUSTER, CLUSTER_NAME) if may_look else 0
        )
    for topic in getattr(answer, "topics", ()):
        if (
            topic.topic_authorized_operations != NOT_ASKED_FOR
            and topic.name is not None
            and not topic.error_code
        ):
            topic.topic_authorized_operations = _left(
                asked, topic.topic_authorized_operations, AclResourceType.TOPIC, topic.name
            )
    for group in getattr(answer, "groups", ()):
        if group.authorized_operations != NOT_ASKED_FOR:
            group.authorized_operations = _left(
                asked, group.authorized_operations, AclResourceType.GROUP, group.group_id
            )


def _left(
    asked: AskedRights[GuardedBroker], operations: int, resource: AclResourceType, name: str
) -> int:
    return sum(
        1 << operation
        for operation in OPERATIONS
        if operations >> operation & 1 and asked.may(operation, resource, name)
    )


BROKER_GUARDS: dict[ApiKey, Guard[GuardedBroker]] = {
    ApiKey.PRODUCE: topic_guards.authorize_produce,
    ApiKey.FETCH: topic_guards.authorize_fetch,
    ApiKey.LIST_OFFSETS: topic_guards.LIST_OFFSETS,
    ApiKey.METADATA: with_authorized_operations(topic_guards.authorize_metadata),
    ApiKey.LEADER_AND_ISR: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.STOP_REPLICA: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.UPDATE_METADATA: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.CONTROLLED_SHUTDOWN: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.ALTER_PARTITION: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.ALLOCATE_PRODUCER_IDS: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.READ_SHARE_GROUP_STATE: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.WRITE_SHARE_GROUP_STATE: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.DELETE_SHARE_GROUP_STATE: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: cluster_guard(AclOperation.CLUSTER_ACTION),
    ApiKey.OFFSET_COMMIT: group_guards.authorize_commit,
    ApiKey.OFFSET_FETCH: group_guards.authorize_offsets,
    ApiKey.FIND_COORDINATOR: group_guards.authorize_coordinator,
    ApiKey.JOIN_GROUP: group_guards.authorize_group,
    ApiKey.HEARTBEAT: group_guards.authorize_group,
    ApiKey.LEAVE_GROUP: group_guards.authorize_group,
    ApiKey.SYNC_GROUP: group_guards.authorize_sync,
    ApiKey.DESCRIBE_GROUPS: with_authorized_operations(group_guards.authorize_descriptions),
    ApiKey.LIST_GROUPS: group_guards.authorize_list,
    ApiKey.DELETE_GROUPS: group_guards.authorize_group_deletion,
    ApiKey.OFFSET_DELETE: group_guards.authorize_offset_deletion,
    ApiKey.DELETE_RECORDS: topic_guards.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID: group_guards.authorize_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: topic_guards.authorize_epochs,
    ApiKey.ADD_PARTITIONS_TO_TXN: transaction_guards.authorize_added_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: transaction_guards.authorize_added_offsets,
    ApiKey.END_TXN: transaction_guards.authorize_end,
    ApiKey.WRITE_TXN_MARKERS: authorize_markers,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: group_guards.authorize_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: with_authorized_operations(
        group_guards.authorize_consumer_group_descriptions
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: streams_guards.authorize_streams_heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: with_authorized_operations(
        streams_guards.authorize_streams_descriptions
    ),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (
        streams_guards.authorize_streams_description_update
    ),
    ApiKey.SHARE_FETCH: group_guards.authorize_share_member,
    ApiKey.SHARE_ACKNOWLEDGE: group_guards.authorize_share_member,
    ApiKey.SHARE_GROUP_HEARTBEAT: share_group_guards.authorize_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: with_authorized_operations(
        share_group_guards.authorize_descriptions
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: share_group_guards.authorize_offset_descriptions,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: share_group_guards.authorize_alterations,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: share_group_guards.authorize_deletions,
    ApiKey.TXN_OFFSET_COMMIT: group_guards.authorize_transactional_commit,
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
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: with_authorized_operations(
        topic_guards.authorize_topic_partitions
    ),
    ApiKey.LIST_CONFIG_RESOURCES: cluster_guard(AclOperation.DESCRIBE_CONFIGS),
}
BROKER_TABLE: GuardTable[GuardedBroker] = GuardTable(BROKER_GUARDS, {**ANY_BROKER, **HANDED_ON})


# --------------------------------------------------------------------------------------------------
# Authorizer checks of a broker in ZooKeeper mode: also for controller requests, which no other
# node checks there
#
# With KRaft a broker forwards such a request in an Envelope, and the controller checks the client
# inside. In ZooKeeper mode the broker that is the controller decides itself.
# Source: kafka.server.KafkaApis of 2.3 to 3.9 (ZkSupport),
# kafka.security.authorizer.AclAuthorizer.


def _name_of(broker: GuardedBroker, topic_id: bytes) -> str | None:
    known = broker.image.topic_by_id(topic_id)
    return None if known is None else known.name


ZOOKEEPER_GUARDS: dict[ApiKey, Guard[GuardedBroker]] = {
    **{
        key: cast(Guard[GuardedBroker], guard)
        for key, guard in CONTROLLER_GUARDS.items()
        if key in FORWARDED
    },
    **BROKER_GUARDS,
    ApiKey.ALTER_CONFIGS: authorize_alterations,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: authorize_alterations,
    ApiKey.CREATE_TOPICS: creation_guard(in_zookeeper_mode=True),
    ApiKey.DELETE_TOPICS: deletion_guard(_name_of),
}
ZOOKEEPER_TABLE: GuardTable[GuardedBroker] = GuardTable(ZOOKEEPER_GUARDS, ANY_BROKER)
