"""Authorizer checks of a broker in ZooKeeper mode: also for controller requests, which no other
node checks there.

With KRaft a broker forwards such a request in an Envelope, and the controller checks the client
inside. In ZooKeeper mode the broker that is the controller decides itself.
Source: kafka.server.KafkaApis of 2.3 to 3.9 (ZkSupport), kafka.security.authorizer.AclAuthorizer.
"""

from typing import cast

from kraftsim.server.forwarded import FORWARDED
from kraftsim.server.security.broker_guards import BROKER_GUARDS
from kraftsim.server.security.config_guards import authorize_alterations
from kraftsim.server.security.controller_guards import (
    CONTROLLER_GUARDS,
    creation_guard,
    deletion_guard,
)
from kraftsim.server.security.exempt import ANY_BROKER
from kraftsim.server.security.guarded_nodes import GuardedBroker
from kraftsim.server.security.rights import Guard, GuardTable
from protocol.api_keys import ApiKey


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
