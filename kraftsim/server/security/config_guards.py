"""Authorizer checks of config requests: of topics, of groups, and of brokers, which need rights on
the cluster.

Source: kafka.server.{ConfigHelper.handleDescribeConfigsRequest,
ControllerApis.authorizeAlterResource, ConfigAdminManager.preprocess}.
"""

import copy
from collections.abc import Callable
from typing import Final, TypeVar

from kraftsim.server.call import Answer, Deferred
from kraftsim.server.rules_authorization import CLUSTER_NAME
from kraftsim.server.security.rights import AskedRights
from protocol.acls import AclOperation, AclResourceType
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResult
from protocol.messages.k33_alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse
from protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResponse,
)
from protocol.schema import Message

N = TypeVar("N")
Refusal = tuple[ErrorCode, str]
TOPIC: Final = (
    AclResourceType.TOPIC,
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
)
GROUP: Final = (
    AclResourceType.GROUP,
    (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
)
CLUSTER: Final = (
    AclResourceType.CLUSTER,
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
)
GUARDED_BY: Final = {
    int(ConfigResourceType.TOPIC): TOPIC,
    int(ConfigResourceType.GROUP): GROUP,
    int(ConfigResourceType.BROKER): CLUSTER,
    int(ConfigResourceType.BROKER_LOGGER): CLUSTER,
    int(ConfigResourceType.CLIENT_METRICS): CLUSTER,
}


def authorize_descriptions(asked: AskedRights[N]) -> Answer | Deferred:
    """Refuse unauthorized resources individually."""
    assert isinstance(asked.call.body, DescribeConfigsRequest), "dispatch decodes by API key"

    def row(resource: Message, refusal: Refusal) -> Message:
        code, why = refusal
        return DescribeConfigsResult(
            error_code=code,
            error_message=why,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    return _without(asked, AclOperation.DESCRIBE_CONFIGS, tuple(GUARDED_BY), row, "results")


def authorize_own_alterations(asked: AskedRights[N]) -> Answer | Deferred:
    """A broker authorizes only changes of its loggers: everything else is forwarded."""
    return _look_at_alterations(asked, (int(ConfigResourceType.BROKER_LOGGER),))


def authorize_alterations(asked: AskedRights[N]) -> Answer | Deferred:
    """Refuse unauthorized resources individually."""
    return _look_at_alterations(asked, tuple(GUARDED_BY))


def _look_at_alterations(asked: AskedRights[N], kinds: tuple[int, ...]) -> Answer | Deferred:
    make = (
        AlterConfigsResourceResponse
        if isinstance(asked.call.body, AlterConfigsRequest)
        else IncrementalResponse
    )

    def row(resource: Message, refusal: Refusal) -> Message:
        code, why = refusal
        made: Message = make(
            error_code=code,
            error_message=why,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        return made

    return _without(asked, AclOperation.ALTER_CONFIGS, kinds, row, "responses")


def _without(
    asked: AskedRights[N],
    operation: AclOperation,
    kinds: tuple[int, ...],
    row: Callable[[Message, Refusal], Message],
    answers: str,
) -> Answer | Deferred:
    request = asked.call.body
    rows, left = [], []
    for resource in request.resources:
        kind, refusal = GUARDED_BY.get(resource.resource_type, CLUSTER)
        name = CLUSTER_NAME if kind is AclResourceType.CLUSTER else resource.resource_name
        if resource.resource_type not in kinds or asked.may(operation, kind, name):
            left.append(resource)
        else:
            rows.append(row(resource, refusal))
    if not rows:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.resources = left
    return asked.pass_on_rest(rest, lambda answer: getattr(answer, answers).extend(rows))
