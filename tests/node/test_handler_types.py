"""A broker has what its request handlers use of it: the type checker checks each handler of this
list, and the list has all of them.
"""

from typing import Never

from kraftsim.catalogue import Catalogue
from kraftsim.client_telemetry.broker_handlers import (
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
)
from kraftsim.groups.broker_handlers import (
    classic_members,
    group_administration,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k28_txn_offset_commit,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k88_streams_group_heartbeat,
    k89_streams_group_describe,
    k93_streams_group_topology_description_update,
    share_group_offsets,
)
from kraftsim.metadata.broker_handlers import cluster, configs, quotas_and_credentials
from kraftsim.partitions.broker_handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k21_delete_records,
    k23_offset_for_leader_epoch,
    k61_describe_producers,
    log_directories,
)
from kraftsim.producer_ids.broker_handlers import k22_init_producer_id
from kraftsim.server.broker import Broker
from kraftsim.server.broker_handlers import k18_api_versions, security
from kraftsim.server.call import Handler
from kraftsim.share_groups.broker_handlers import (
    k78_share_fetch,
    k79_share_acknowledge,
    share_states,
)
from kraftsim.transactions.broker_handlers import descriptions, k27_write_txn_markers, transaction
from kraftsim.zookeeper.broker_handlers import controller_requests

HANDLERS: tuple[Handler[Broker], ...] = (
    k00_produce.HANDLER,
    k01_fetch.HANDLER,
    k02_list_offsets.HANDLER,
    cluster.METADATA,
    controller_requests.LEADER_AND_ISR,
    controller_requests.STOP_REPLICA,
    controller_requests.UPDATE_METADATA,
    controller_requests.CONTROLLED_SHUTDOWN,
    k08_offset_commit.HANDLER,
    k09_offset_fetch.HANDLER,
    k10_find_coordinator.HANDLER,
    classic_members.JOIN_GROUP,
    classic_members.HEARTBEAT,
    classic_members.LEAVE_GROUP,
    classic_members.SYNC_GROUP,
    group_administration.DESCRIBE_GROUPS,
    group_administration.LIST_GROUPS,
    security.SASL_HANDSHAKE,
    k18_api_versions.HANDLER,
    k21_delete_records.HANDLER,
    k22_init_producer_id.HANDLER,
    k23_offset_for_leader_epoch.HANDLER,
    transaction.ADD_PARTITIONS_TO_TXN,
    transaction.ADD_OFFSETS_TO_TXN,
    transaction.END_TXN,
    k27_write_txn_markers.HANDLER,
    k28_txn_offset_commit.HANDLER,
    security.DESCRIBE_ACLS,
    configs.DESCRIBE_CONFIGS,
    configs.ALTER_CONFIGS,
    log_directories.ALTER_REPLICA_LOG_DIRS,
    log_directories.DESCRIBE_LOG_DIRS,
    security.SASL_AUTHENTICATE,
    security.CREATE_DELEGATION_TOKEN,
    security.RENEW_DELEGATION_TOKEN,
    security.EXPIRE_DELEGATION_TOKEN,
    security.DESCRIBE_DELEGATION_TOKEN,
    group_administration.DELETE_GROUPS,
    configs.INCREMENTAL_ALTER_CONFIGS,
    group_administration.OFFSET_DELETE,
    quotas_and_credentials.DESCRIBE_CLIENT_QUOTAS,
    quotas_and_credentials.DESCRIBE_USER_SCRAM_CREDENTIALS,
    controller_requests.ALTER_PARTITION,
    cluster.DESCRIBE_CLUSTER,
    k61_describe_producers.HANDLER,
    descriptions.DESCRIBE_TRANSACTIONS,
    descriptions.LIST_TRANSACTIONS,
    controller_requests.ALLOCATE_PRODUCER_IDS,
    k68_consumer_group_heartbeat.HANDLER,
    k69_consumer_group_describe.HANDLER,
    k71_get_telemetry_subscriptions.HANDLER,
    k72_push_telemetry.HANDLER,
    configs.LIST_CONFIG_RESOURCES,
    cluster.DESCRIBE_TOPIC_PARTITIONS,
    k76_share_group_heartbeat.HANDLER,
    k77_share_group_describe.HANDLER,
    k78_share_fetch.HANDLER,
    k79_share_acknowledge.HANDLER,
    *share_states.HANDLERS,
    k88_streams_group_heartbeat.HANDLER,
    k89_streams_group_describe.HANDLER,
    *share_group_offsets.HANDLERS,
    k93_streams_group_topology_description_update.HANDLER,
)


def test_every_handler_of_a_broker_is_checked_against_its_type() -> None:
    found: Catalogue[Handler[Never]] = Catalogue("kraftsim.*.broker_handlers", "HANDLER", Handler)
    assert found.all() == HANDLERS
