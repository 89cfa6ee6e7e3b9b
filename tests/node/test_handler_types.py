"""A broker has what its request handlers use of it: the type checker checks each handler of this
list, and the list has all of them.
"""

from typing import Never

from kraftsim.catalogue import Catalogue
from kraftsim.groups.broker_handlers import (
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k28_txn_offset_commit,
    k42_delete_groups,
    k47_offset_delete,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
)
from kraftsim.metadata.broker_handlers import (
    k03_metadata,
    k32_describe_configs,
    k33_alter_configs,
    k44_incremental_alter_configs,
    k48_describe_client_quotas,
    k50_describe_user_scram_credentials,
    k60_describe_cluster,
    k74_list_config_resources,
    k75_describe_topic_partitions,
)
from kraftsim.partitions.broker_handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k21_delete_records,
    k23_offset_for_leader_epoch,
    k34_alter_replica_log_dirs,
    k35_describe_log_dirs,
    k56_alter_partition,
    k61_describe_producers,
)
from kraftsim.producer_ids.broker_handlers import (
    k22_init_producer_id,
    k67_allocate_producer_ids,
)
from kraftsim.server.broker import Broker
from kraftsim.server.broker_handlers import (
    k17_sasl_handshake,
    k18_api_versions,
    k29_describe_acls,
    k36_sasl_authenticate,
    k38_create_delegation_token,
    k39_renew_delegation_token,
    k40_expire_delegation_token,
    k41_describe_delegation_token,
)
from kraftsim.server.call import Handler
from kraftsim.transactions.broker_handlers import (
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k27_write_txn_markers,
    k65_describe_transactions,
    k66_list_transactions,
)
from kraftsim.zookeeper.broker_handlers import (
    k04_leader_and_isr,
    k05_stop_replica,
    k06_update_metadata,
    k07_controlled_shutdown,
)

HANDLERS: tuple[Handler[Broker], ...] = (
    k00_produce.HANDLER,
    k01_fetch.HANDLER,
    k02_list_offsets.HANDLER,
    k03_metadata.HANDLER,
    k04_leader_and_isr.HANDLER,
    k05_stop_replica.HANDLER,
    k06_update_metadata.HANDLER,
    k07_controlled_shutdown.HANDLER,
    k08_offset_commit.HANDLER,
    k09_offset_fetch.HANDLER,
    k10_find_coordinator.HANDLER,
    k11_join_group.HANDLER,
    k12_heartbeat.HANDLER,
    k13_leave_group.HANDLER,
    k14_sync_group.HANDLER,
    k15_describe_groups.HANDLER,
    k16_list_groups.HANDLER,
    k17_sasl_handshake.HANDLER,
    k18_api_versions.HANDLER,
    k21_delete_records.HANDLER,
    k22_init_producer_id.HANDLER,
    k23_offset_for_leader_epoch.HANDLER,
    k24_add_partitions_to_txn.HANDLER,
    k25_add_offsets_to_txn.HANDLER,
    k26_end_txn.HANDLER,
    k27_write_txn_markers.HANDLER,
    k28_txn_offset_commit.HANDLER,
    k29_describe_acls.HANDLER,
    k32_describe_configs.HANDLER,
    k33_alter_configs.HANDLER,
    k34_alter_replica_log_dirs.HANDLER,
    k35_describe_log_dirs.HANDLER,
    k36_sasl_authenticate.HANDLER,
    k38_create_delegation_token.HANDLER,
    k39_renew_delegation_token.HANDLER,
    k40_expire_delegation_token.HANDLER,
    k41_describe_delegation_token.HANDLER,
    k42_delete_groups.HANDLER,
    k44_incremental_alter_configs.HANDLER,
    k47_offset_delete.HANDLER,
    k48_describe_client_quotas.HANDLER,
    k50_describe_user_scram_credentials.HANDLER,
    k56_alter_partition.HANDLER,
    k60_describe_cluster.HANDLER,
    k61_describe_producers.HANDLER,
    k65_describe_transactions.HANDLER,
    k66_list_transactions.HANDLER,
    k67_allocate_producer_ids.HANDLER,
    k68_consumer_group_heartbeat.HANDLER,
    k69_consumer_group_describe.HANDLER,
    k74_list_config_resources.HANDLER,
    k75_describe_topic_partitions.HANDLER,
)


def test_every_handler_of_a_broker_is_checked_against_its_type() -> None:
    found: Catalogue[Handler[Never]] = Catalogue("kraftsim.*.broker_handlers", "HANDLER", Handler)
    assert found.all() == HANDLERS
