"""Who may act on a cluster, by the address that he dials from: entries, and the requests that add and drop them.   Source: KIP-140."""

from collections.abc import Sequence

from protocol.acls import AclOperation, AclPermissionType, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from protocol.schema import Message

CLUSTER, ANYBODY, ANYWHERE = "kafka-cluster", "User:*", "*"


def everybody() -> AclCreation:
    """Return the entry that lets everybody do everything: an entry that forbids would shut out the others, too, if there were no other one."""
    return _entry(ANYWHERE, AclOperation.ALL, AclPermissionType.ALLOW)


def shut_out(host: str) -> AclCreation:
    """Return the entry by which whoever comes from an address may not act as a broker."""
    return _entry(host, AclOperation.CLUSTER_ACTION, AclPermissionType.DENY)


def added(entries: Sequence[AclCreation]) -> CreateAclsRequest:
    """Return the request that adds entries."""
    return CreateAclsRequest(creations=list(entries))


def dropped(entries: Sequence[AclCreation]) -> DeleteAclsRequest:
    """Return the request that drops just these entries."""
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
    """Tell whether entries are as they were wished; a broker that may not pass the wish on says so."""
    assert isinstance(answer, CreateAclsResponse | DeleteAclsResponse), "rights were changed"
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
