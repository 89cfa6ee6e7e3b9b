"""Authorizer check of WriteTxnMarkers: brokers, and administrators with ALTER on the cluster (KIP-664).

Source: kafka.server.KafkaApis.handleWriteTxnMarkersRequest.
"""

from typing import TYPE_CHECKING

from kraftsim.node.call import Answer, Deferred
from kraftsim.node.security.rights import Asked
from protocol.acls import AclOperation
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraftsim.node.broker.broker import Broker


def authorize_markers(asked: "Asked[Broker]") -> Answer | Deferred:
    """Either right is sufficient."""
    if asked.may_on_cluster(AclOperation.ALTER) or asked.may_on_cluster(AclOperation.CLUSTER_ACTION):
        return asked.pass_on()
    return asked.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
