"""Authorized operations in responses: reduces the operations of a resource to those that the client is authorized for.

Source: KIP-430, kafka.server.AuthHelper.authorizedOperations.
"""

from typing import TYPE_CHECKING, Final

from kraftsim.core.security.authorizer import CLUSTER_NAME
from kraftsim.node.call import Answer, Deferred
from kraftsim.node.security.rights import Asked, Guard, completed
from protocol.acls import AclOperation, AclResourceType
from protocol.schema import Message

if TYPE_CHECKING:
    from kraftsim.node.broker.broker import Broker

NOT_ASKED_FOR: Final = -(2**31)
OPERATIONS: Final = tuple(AclOperation)


def with_authorized_operations(look: "Guard[Broker]") -> "Guard[Broker]":
    """Return a guard whose responses list only authorized operations."""

    def look_and_filter(asked: "Asked[Broker]") -> Answer | Deferred:
        return completed(asked.call, look(asked), lambda answer: _filter_operations(asked, answer))

    return look_and_filter


def pass_on(asked: "Asked[Broker]") -> Answer | Deferred:
    """Every client is served."""
    return asked.pass_on()


def _filter_operations(asked: "Asked[Broker]", answer: Message) -> None:
    operations = getattr(answer, "cluster_authorized_operations", NOT_ASKED_FOR)
    if operations != NOT_ASKED_FOR:
        may_look = asked.may_on_cluster(AclOperation.DESCRIBE)
        answer.cluster_authorized_operations = _left(asked, operations, AclResourceType.CLUSTER, CLUSTER_NAME) if may_look else 0
    for topic in getattr(answer, "topics", ()):
        if topic.topic_authorized_operations != NOT_ASKED_FOR and topic.name is not None and not topic.error_code:
            topic.topic_authorized_operations = _left(asked, topic.topic_authorized_operations, AclResourceType.TOPIC, topic.name)
    for group in getattr(answer, "groups", ()):
        if group.authorized_operations != NOT_ASKED_FOR:
            group.authorized_operations = _left(asked, group.authorized_operations, AclResourceType.GROUP, group.group_id)


def _left(asked: "Asked[Broker]", operations: int, resource: AclResourceType, name: str) -> int:
    return sum(1 << operation for operation in OPERATIONS if operations >> operation & 1 and asked.may(operation, resource, name))
