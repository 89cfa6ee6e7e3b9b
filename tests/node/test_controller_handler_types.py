"""A controller has what its request handlers use of it, checked as for a broker."""

from typing import Never

from kraftsim.catalogue import Catalogue
from kraftsim.metadata.controller_handlers import (
    cluster,
    configs,
    partitions,
    quotas_and_credentials,
    topics,
)
from kraftsim.producer_ids.controller_handlers import (
    k67_allocate_producer_ids,
)
from kraftsim.raft.controller_handlers import quorum
from kraftsim.server.call import Handler
from kraftsim.server.controller import Controller
from kraftsim.server.controller_handlers import k18_api_versions, k58_envelope, security

HANDLERS: tuple[Handler[Controller], ...] = (
    quorum.FETCH,
    security.SASL_HANDSHAKE,
    k18_api_versions.HANDLER,
    topics.CREATE_TOPICS,
    topics.DELETE_TOPICS,
    security.DESCRIBE_ACLS,
    security.CREATE_ACLS,
    security.DELETE_ACLS,
    configs.DESCRIBE_CONFIGS,
    configs.ALTER_CONFIGS,
    security.SASL_AUTHENTICATE,
    topics.CREATE_PARTITIONS,
    security.CREATE_DELEGATION_TOKEN,
    security.RENEW_DELEGATION_TOKEN,
    security.EXPIRE_DELEGATION_TOKEN,
    partitions.ELECT_LEADERS,
    configs.INCREMENTAL_ALTER_CONFIGS,
    partitions.ALTER_PARTITION_REASSIGNMENTS,
    partitions.LIST_PARTITION_REASSIGNMENTS,
    quotas_and_credentials.ALTER_CLIENT_QUOTAS,
    quotas_and_credentials.ALTER_USER_SCRAM_CREDENTIALS,
    quorum.VOTE,
    quorum.BEGIN_QUORUM_EPOCH,
    quorum.END_QUORUM_EPOCH,
    quorum.DESCRIBE_QUORUM,
    partitions.ALTER_PARTITION,
    cluster.UPDATE_FEATURES,
    k58_envelope.HANDLER,
    quorum.FETCH_SNAPSHOT,
    cluster.DESCRIBE_CLUSTER,
    cluster.BROKER_REGISTRATION,
    cluster.BROKER_HEARTBEAT,
    cluster.UNREGISTER_BROKER,
    k67_allocate_producer_ids.HANDLER,
    cluster.CONTROLLER_REGISTRATION,
    partitions.ASSIGN_REPLICAS_TO_DIRS,
    quorum.ADD_RAFT_VOTER,
    quorum.REMOVE_RAFT_VOTER,
    quorum.UPDATE_RAFT_VOTER,
    cluster.UNREGISTER_CONTROLLER,
)


def test_every_handler_of_a_controller_is_checked_against_its_type() -> None:
    found: Catalogue[Handler[Never]] = Catalogue(
        "kraftsim.*.controller_handlers", "HANDLER", Handler
    )
    assert found.all() == HANDLERS
