"""A controller has what its request handlers use of it, checked as for a broker."""

from typing import Never

from kraftsim.catalogue import Catalogue
from kraftsim.metadata.controller_handlers import (
    k19_create_topics,
    k20_delete_topics,
    k32_describe_configs,
    k33_alter_configs,
    k37_create_partitions,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k49_alter_client_quotas,
    k51_alter_user_scram_credentials,
    k56_alter_partition,
    k57_update_features,
    k60_describe_cluster,
    k62_broker_registration,
    k63_broker_heartbeat,
    k64_unregister_broker,
    k70_controller_registration,
    k73_assign_replicas_to_dirs,
    k94_unregister_controller,
)
from kraftsim.producer_ids.controller_handlers import (
    k67_allocate_producer_ids,
)
from kraftsim.raft.controller_handlers import (
    k01_fetch,
    k52_vote,
    k53_begin_quorum_epoch,
    k54_end_quorum_epoch,
    k55_describe_quorum,
    k59_fetch_snapshot,
    k80_add_raft_voter,
    k81_remove_raft_voter,
    k82_update_raft_voter,
)
from kraftsim.server.call import Handler
from kraftsim.server.controller import Controller
from kraftsim.server.controller_handlers import (
    k17_sasl_handshake,
    k18_api_versions,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k36_sasl_authenticate,
    k38_create_delegation_token,
    k39_renew_delegation_token,
    k40_expire_delegation_token,
    k58_envelope,
)

HANDLERS: tuple[Handler[Controller], ...] = (
    k01_fetch.HANDLER,
    k17_sasl_handshake.HANDLER,
    k18_api_versions.HANDLER,
    k19_create_topics.HANDLER,
    k20_delete_topics.HANDLER,
    k29_describe_acls.HANDLER,
    k30_create_acls.HANDLER,
    k31_delete_acls.HANDLER,
    k32_describe_configs.HANDLER,
    k33_alter_configs.HANDLER,
    k36_sasl_authenticate.HANDLER,
    k37_create_partitions.HANDLER,
    k38_create_delegation_token.HANDLER,
    k39_renew_delegation_token.HANDLER,
    k40_expire_delegation_token.HANDLER,
    k43_elect_leaders.HANDLER,
    k44_incremental_alter_configs.HANDLER,
    k45_alter_partition_reassignments.HANDLER,
    k46_list_partition_reassignments.HANDLER,
    k49_alter_client_quotas.HANDLER,
    k51_alter_user_scram_credentials.HANDLER,
    k52_vote.HANDLER,
    k53_begin_quorum_epoch.HANDLER,
    k54_end_quorum_epoch.HANDLER,
    k55_describe_quorum.HANDLER,
    k56_alter_partition.HANDLER,
    k57_update_features.HANDLER,
    k58_envelope.HANDLER,
    k59_fetch_snapshot.HANDLER,
    k60_describe_cluster.HANDLER,
    k62_broker_registration.HANDLER,
    k63_broker_heartbeat.HANDLER,
    k64_unregister_broker.HANDLER,
    k67_allocate_producer_ids.HANDLER,
    k70_controller_registration.HANDLER,
    k73_assign_replicas_to_dirs.HANDLER,
    k80_add_raft_voter.HANDLER,
    k81_remove_raft_voter.HANDLER,
    k82_update_raft_voter.HANDLER,
    k94_unregister_controller.HANDLER,
)


def test_every_handler_of_a_controller_is_checked_against_its_type() -> None:
    found: Catalogue[Handler[Never]] = Catalogue(
        "kraftsim.*.controller_handlers", "HANDLER", Handler
    )
    assert found.all() == HANDLERS
