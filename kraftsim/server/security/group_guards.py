"""Authorizer checks of group and producer requests: GROUP_AUTHORIZATION_FAILED and related errors.

Source: kafka.server.KafkaApis; checked against Apache Kafka 3.9.1.
"""

import copy
from typing import Final

from kraftsim.server.call import Answer, Deferred
from kraftsim.server.security.rights import AskedRights, GuardedBroker, split
from protocol.acls import AclOperation, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.k14_sync_group import SyncGroupRequest
from protocol.messages.k15_describe_groups import DescribedGroup, DescribeGroupsRequest
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsRequest
from protocol.schema import Message

GROUP: Final = AclResourceType.GROUP
FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
OF_GROUPS, OF_TRANSACTIONS = 0, 1
FIRST_VERSION_WITH_KEYS = 4
FIRST_VERSION_WITH_PROTOCOL = 5
NOWHERE: Final = -1


def authorize_group(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """A member needs READ on the group."""
    group: str = asked.call.body.group_id
    return asked.pass_on() if asked.may(AclOperation.READ, GROUP, group) else asked.refuse(FAILED)


def authorize_sync(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """The protocol is validated first: INCONSISTENT_GROUP_PROTOCOL (KIP-559)."""
    request = asked.call.body
    assert isinstance(request, SyncGroupRequest), "dispatch decodes by API key"
    names_none = asked.call.api_version >= FIRST_VERSION_WITH_PROTOCOL and None in (
        request.protocol_type,
        request.protocol_name,
    )
    return (
        asked.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if names_none
        else authorize_group(asked)
    )


def authorize_coordinator(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """FindCoordinator needs DESCRIBE on the group or transactional id."""
    request = asked.call.body
    assert isinstance(request, FindCoordinatorRequest), "dispatch decodes by API key"
    kind, error = (
        (AclResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if request.key_type == OF_TRANSACTIONS
        else (GROUP, FAILED)
    )
    if request.key_type not in (OF_GROUPS, OF_TRANSACTIONS):
        return asked.pass_on()
    if asked.call.api_version < FIRST_VERSION_WITH_KEYS:
        return (
            asked.pass_on()
            if asked.may(AclOperation.DESCRIBE, kind, request.key)
            else _nowhere(error)
        )
    allowed, hidden = split(
        request.coordinator_keys, lambda key: asked.may(AclOperation.DESCRIBE, kind, key)
    )
    if not hidden:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.coordinator_keys = allowed
    rows = [Coordinator(key=key, error_code=error, node_id=NOWHERE, port=NOWHERE) for key in hidden]
    return asked.pass_on_rest(rest, lambda answer: answer.coordinators.extend(rows))


def _nowhere(error: ErrorCode) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=error, error_message=MESSAGES[error], node_id=NOWHERE, port=NOWHERE
    )


MESSAGES: Final = {
    FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}


def authorize_descriptions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Refuse unauthorized groups individually."""
    request = asked.call.body
    assert isinstance(request, DescribeGroupsRequest), "dispatch decodes by API key"
    allowed, hidden = split(
        request.groups, lambda name: asked.may(AclOperation.DESCRIBE, GROUP, name)
    )
    if not hidden:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.groups = allowed
    return asked.pass_on_rest(
        rest,
        lambda answer: answer.groups.extend(
            DescribedGroup(error_code=FAILED, group_id=name) for name in hidden
        ),
    )


def authorize_list(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """DESCRIBE on the cluster lists all groups, otherwise only groups with DESCRIBE are listed."""
    if asked.may_on_cluster(AclOperation.DESCRIBE):
        return asked.pass_on()

    def hide(answer: Message) -> None:
        answer.groups = [
            group
            for group in answer.groups
            if asked.may(AclOperation.DESCRIBE, GROUP, group.group_id)
        ]

    return asked.pass_on_rest(asked.call.body, hide)


def authorize_group_deletion(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Refuse unauthorized groups individually."""
    request = asked.call.body
    assert isinstance(request, DeleteGroupsRequest), "dispatch decodes by API key"
    allowed, kept = split(
        request.groups_names, lambda name: asked.may(AclOperation.DELETE, GROUP, name)
    )
    if not kept:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.groups_names = allowed
    return asked.pass_on_rest(
        rest,
        lambda answer: answer.results.extend(
            DeletableGroupResult(group_id=name, error_code=FAILED) for name in kept
        ),
    )


def authorize_producer_id(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """An idempotent producer needs WRITE on any topic (KIP-679), a transactional one WRITE on its
    transactional id.
    """
    request = asked.call.body
    assert isinstance(request, InitProducerIdRequest), "dispatch decodes by API key"
    if request.transactional_id is not None:
        may = asked.may(
            AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id
        )
        return (
            asked.pass_on()
            if may
            else asked.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        )
    if asked.may_on_cluster(AclOperation.IDEMPOTENT_WRITE) or asked.may_on_any(
        AclOperation.WRITE, AclResourceType.TOPIC
    ):
        return asked.pass_on()
    return asked.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
