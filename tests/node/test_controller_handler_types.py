"""A controller has what its request handlers use of it, checked as for a broker."""

from typing import Never

from kraftsim.catalogue import Catalogue
from kraftsim.metadata.controller_handlers import (
    brokers,
    configs,
    controllers,
    k19_create_topics,
    k20_delete_topics,
    k37_create_partitions,
    k43_elect_leaders,
    k56_alter_partition,
    k57_update_features,
    k60_describe_cluster,
    k73_assign_replicas_to_dirs,
    quotas_and_credentials,
    reassignments,
)
from kraftsim.producer_ids.controller_handlers import (
    k67_allocate_producer_ids,
)
from kraftsim.raft.controller_handlers import elections, log_fetches, voters
from kraftsim.server.call import Handler
from kraftsim.server.controller import Controller
from kraftsim.server.controller_handlers import k18_api_versions, k58_envelope, security

HANDLERS: tuple[Handler[Controller], ...] = (
    log_fetches.FETCH,
    security.SASL_HANDSHAKE,
    k18_api_versions.HANDLER,
    k19_create_topics.HANDLER,
    k20_delete_topics.HANDLER,
    security.DESCRIBE_ACLS,
    security.CREATE_ACLS,
    security.DELETE_ACLS,
    configs.DESCRIBE_CONFIGS,
    configs.ALTER_CONFIGS,
    security.SASL_AUTHENTICATE,
    k37_create_partitions.HANDLER,
    security.CREATE_DELEGATION_TOKEN,
    security.RENEW_DELEGATION_TOKEN,
    security.EXPIRE_DELEGATION_TOKEN,
    k43_elect_leaders.HANDLER,
    configs.INCREMENTAL_ALTER_CONFIGS,
    reassignments.ALTER_PARTITION_REASSIGNMENTS,
    reassignments.LIST_PARTITION_REASSIGNMENTS,
    quotas_and_credentials.ALTER_CLIENT_QUOTAS,
    quotas_and_credentials.ALTER_USER_SCRAM_CREDENTIALS,
    elections.VOTE,
    elections.BEGIN_QUORUM_EPOCH,
    elections.END_QUORUM_EPOCH,
    voters.DESCRIBE_QUORUM,
    k56_alter_partition.HANDLER,
    k57_update_features.HANDLER,
    k58_envelope.HANDLER,
    log_fetches.FETCH_SNAPSHOT,
    k60_describe_cluster.HANDLER,
    brokers.BROKER_REGISTRATION,
    brokers.BROKER_HEARTBEAT,
    brokers.UNREGISTER_BROKER,
    k67_allocate_producer_ids.HANDLER,
    controllers.CONTROLLER_REGISTRATION,
    k73_assign_replicas_to_dirs.HANDLER,
    voters.ADD_RAFT_VOTER,
    voters.REMOVE_RAFT_VOTER,
    voters.UPDATE_RAFT_VOTER,
    controllers.UNREGISTER_CONTROLLER,
)


def test_every_handler_of_a_controller_is_checked_against_its_type() -> None:
    found: Catalogue[Handler[Never]] = Catalogue(
        "kraftsim.*.controller_handlers", "HANDLER", Handler
    )
    assert found.all() == HANDLERS
