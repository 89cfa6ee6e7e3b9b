"""SaslHandshake (17): ILLEGAL_SASL_STATE, unless a client re-authenticates.

Source: KIP-152, KIP-368, kafka.server.KafkaApis.
"""

from kraftsim.server.call import Handler
from kraftsim.server.security.sasl_gate import refuse_handshake, serve_handshake
from protocol.api_keys import ApiKey

HANDLER: Handler[object] = Handler(
    key=ApiKey.SASL_HANDSHAKE, handle=serve_handshake, refuse=refuse_handshake
)
