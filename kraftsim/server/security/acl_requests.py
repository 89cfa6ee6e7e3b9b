"""ACL requests that Kafka fails to parse: one with UNKNOWN in an enumeration closes its connection,
before authorization.

Source: org.apache.kafka.common.requests.{CreateAclsRequest, DeleteAclsRequest,
DescribeAclsRequest}.
"""

from collections.abc import Iterable
from typing import Final, TypeVar

from kraftsim.server.call import Answer, Call, Closing, Deferred, Handler
from kraftsim.server.rules_authorization import holds_unknown
from protocol.api_keys import ApiKey

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
