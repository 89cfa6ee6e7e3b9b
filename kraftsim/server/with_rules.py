"""ACL requests on a cluster with an authorizer.

Source: KIP-140, KIP-290, kafka.server.AclApis, AclControlManager.
"""

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.rules_registries import Registries
from kraftsim.server.call import Answer, Call, Closing, Deferred, Handler
from kraftsim.server.identity import random_uuid
from kraftsim.server.rules_authorization import (
    KnownRights,
    Rule,
    RuleSearch,
    decide_create_rules,
    decide_delete_rules,
    holds_filters,
    holds_unknown,
)
from kraftsim.server.without_security import create_acls
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k29_describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from protocol.messages.k30_create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from protocol.messages.k31_delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


class RulesParts(Protocol):
    """What the release decides for ACLs."""

    @property
    def rights(self) -> KnownRights:
        """The ACL operations and resource types of the release."""
        ...


class RulesController(DecidingController, Protocol):
    """A controller that changes ACLs."""

    @property
    def parts(self) -> RulesParts:
        """The replaceable classes of the node."""
        ...


def describe_rules(registries: Registries, call: Call) -> Answer:
    """Return the ACLs that match a filter, grouped by resource."""
    asked = call.body
    assert isinstance(asked, DescribeAclsRequest), "dispatch decodes by API key"
    found: dict[tuple[int, str, int], list[Rule]] = {}
    for rule in RuleSearch(registries.access_rules.records()).found(asked):
        found.setdefault((rule.resource_type, rule.resource_name, rule.pattern_type), []).append(
            rule
        )
    resources = [
        DescribeAclsResource(
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern,
            acls=[_described(rule) for rule in found[kind, name, pattern]],
        )
        for kind, name, pattern in sorted(found)
    ]
    return DescribeAclsResponse(resources=resources)


def create_rules(controller: RulesController, call: Call) -> Answer | Deferred:
    """Create ACLs; answered once they are committed."""
    asked = call.body
    assert isinstance(asked, CreateAclsRequest), "dispatch decodes by API key"
    if holds_filters(asked.creations):
        return create_acls(call, ErrorCode.UNKNOWN_SERVER_ERROR)
    writer = controller.metadata_writer
    decision = decide_create_rules(
        writer.state.registries,
        asked.creations,
        lambda: random_uuid(controller.world, "access rules"),
        controller.parts.rights,
    )
    results = [_result(refusal) for refusal in decision.result]
    return writer.commit(decision, lambda offsets: CreateAclsResponse(results=results))


def delete_rules(controller: RulesController, call: Call) -> Answer | Deferred:
    """Delete ACLs; answered once that is committed."""
    asked = call.body
    assert isinstance(asked, DeleteAclsRequest), "dispatch decodes by API key"
    writer = controller.metadata_writer
    decision = decide_delete_rules(writer.state.registries, asked.filters, controller.parts.rights)
    results = [_deleted(result) for result in decision.result]
    return writer.commit(decision, lambda offsets: DeleteAclsResponse(filter_results=results))


def _described(rule: Rule) -> AclDescription:
    return AclDescription(
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission_type,
    )


def _result(refusal: Refusal | None) -> AclCreationResult:
    return (
        AclCreationResult()
        if refusal is None
        else AclCreationResult(error_code=refusal.error, error_message=refusal.message)
    )


def _deleted(result: Refusal | list[Rule]) -> DeleteAclsFilterResult:
    if isinstance(result, Refusal):
        return DeleteAclsFilterResult(error_code=result.error, error_message=result.message)
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[_matching(rule) for rule in result],
    )


def _matching(rule: Rule) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission_type,
    )


# --------------------------------------------------------------------------------------------------
# ACL requests that Kafka fails to parse: one with UNKNOWN in an enumeration closes its
# connection, before authorization
#
# Source: org.apache.kafka.common.requests.{CreateAclsRequest, DeleteAclsRequest,
# DescribeAclsRequest}.

N = TypeVar("N")
ABOUT_RULES: Final = frozenset({ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS})
WHY: Final = "an access rule or filter holds UNKNOWN elements"


def parsing_rules(handlers: Iterable[Handler[N]]) -> tuple[Handler[N], ...]:
    """Return handlers in which ACL requests close the connection for what Kafka fails to parse."""
    return tuple(
        _parsing(handler) if handler.key in ABOUT_RULES else handler for handler in handlers
    )


def _parsing(handler: Handler[N]) -> Handler[N]:
    def handle(node: N, call: Call) -> Answer | Deferred:
        return Closing(WHY) if holds_unknown(call.body) else handler.handle(node, call)

    return Handler(key=handler.key, handle=handle, refuse=handler.refuse, slices=handler.slices)
