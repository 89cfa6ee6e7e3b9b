"""SaslHandshake (17): illegal here, except for a re-authentication.

Source: KIP-152, KIP-368, kafka.server.KafkaApis.
"""

from kraftsim.server.call import Handler
from kraftsim.server.security.sasl_gate import refuse_handshake, serve_handshake
from protocol.api_keys import ApiKey

HANDLER: Handler[object] = Handler(
    key=ApiKey.SASL_HANDSHAKE, handle=serve_handshake, refuse=refuse_handshake
)
