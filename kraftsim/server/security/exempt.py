"""APIs without an authorizer check, with the reason: a node with an authorizer refuses to start if
a served API is neither here nor in a table of checks.

Source: kafka.server.{KafkaApis, ControllerApis}.
"""

from collections.abc import Mapping
from typing import Final

from kraftsim.server.forwarded import FORWARDED
from protocol.api_keys import ApiKey

BEFORE_AUTHENTICATION: Final = (
    "negotiates versions or authenticates the client, before it has any right"
)
NO_TOKENS: Final = "delegation tokens are refused to every client"
IN_ENVELOPE: Final = "the broker forwards it; the controller checks the client inside the Envelope"

ANY_NODE: Final[Mapping[ApiKey, str]] = {
    **dict.fromkeys(
        (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
        BEFORE_AUTHENTICATION,
    ),
    **dict.fromkeys(
        (
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
        ),
        NO_TOKENS,
    ),
}
ANY_BROKER: Final[Mapping[ApiKey, str]] = {**ANY_NODE, ApiKey.DESCRIBE_DELEGATION_TOKEN: NO_TOKENS}
HANDED_ON: Final[Mapping[ApiKey, str]] = {
    key: IN_ENVELOPE
    for key in sorted(FORWARDED - set(ANY_NODE))
    if key not in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
}
"""APIs that a KRaft broker does not authorize itself."""
