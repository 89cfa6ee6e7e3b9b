"""ACLs by source address: entries, and the requests that create and delete them.

Source: KIP-140.
"""

from collections.abc import Sequence

from protocol.acls import AclOperation, AclPermissionType, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.k31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.schema import Message

CLUSTER, ANYBODY, ANYWHERE = "kafka-cluster", "User:*", "*"


def allow_all_entry() -> AclCreation:
    """Return the entry that allows all operations to all: with a deny entry alone, no other client
    would be authorized either.
    """
    return _entry(ANYWHERE, AclOperation.ALL, AclPermissionType.ALLOW)


def shut_out(host: str) -> AclCreation:
    """Return the entry that denies ClusterAction to clients from an address."""
    return _entry(host, AclOperation.CLUSTER_ACTION, AclPermissionType.DENY)


def added(entries: Sequence[AclCreation]) -> CreateAclsRequest:
    """Return the request that adds entries."""
    return CreateAclsRequest(creations=list(entries))


def dropped(entries: Sequence[AclCreation]) -> DeleteAclsRequest:
    """Return the request that deletes exactly these entries."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=each.resource_type,
            resource_name_filter=each.resource_name,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        for each in entries
    ]
    return DeleteAclsRequest(filters=filters)


def is_done(answer: Message) -> bool:
    """Return whether the entries are as requested; a broker that may not forward the request
    answers with an error.
    """
    assert isinstance(answer, CreateAclsResponse | DeleteAclsResponse), "ACLs were changed"
    results = answer.results if isinstance(answer, CreateAclsResponse) else answer.filter_results
    return all(each.error_code == ErrorCode.NONE for each in results)


def _entry(host: str, operation: AclOperation, permission: AclPermissionType) -> AclCreation:
    return AclCreation(
        resource_type=AclResourceType.CLUSTER,
        resource_name=CLUSTER,
        principal=ANYBODY,
        host=host,
        operation=operation,
        permission_type=permission,
    )
