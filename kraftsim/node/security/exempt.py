"""APIs without a guard, and why: what a node serves is in a table of guards or here, else a node with an authorizer does not start.

Source: kafka.server.{KafkaApis, ControllerApis}.
"""

from collections.abc import Mapping
from typing import Final

from kraftsim.node.broker.forwarded import FORWARDED
from protocol.api_keys import ApiKey

SAYS_WHO: Final = "a client says with it which versions it speaks and who it is, before it has any right"
NO_TOKENS: Final = "delegation tokens are refused to every client"
IN_ENVELOPE: Final = "the broker hands it on; the controller checks the client inside the Envelope"

ANY_NODE: Final[Mapping[ApiKey, str]] = {
    **dict.fromkeys((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE), SAYS_WHO),
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
    key: IN_ENVELOPE for key in sorted(FORWARDED - set(ANY_NODE)) if key not in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
}
"""What a KRaft broker does not look at."""
