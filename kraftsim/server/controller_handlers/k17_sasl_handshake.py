"""SaslHandshake (17): illegal here, except for a re-authentication.

Source: KIP-152, KIP-368, kafka.server.KafkaApis.
"""

from typing import TYPE_CHECKING

from kraftsim.server.call import Handler
from kraftsim.server.security.sasl_gate import refuse_handshake, serve_handshake
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kraftsim.server.controller import Controller

HANDLER: "Handler[Controller]" = Handler(
    key=ApiKey.SASL_HANDSHAKE, handle=serve_handshake, refuse=refuse_handshake
)
