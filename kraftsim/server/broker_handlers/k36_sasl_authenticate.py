"""SaslAuthenticate (36): ILLEGAL_SASL_STATE, unless a client re-authenticates.

Source: KIP-152, KIP-368, KafkaApis.
"""

from kraftsim.server.call import Handler
from kraftsim.server.security.sasl_gate import refuse_authentication, serve_authentication
from protocol.api_keys import ApiKey

HANDLER: Handler[object] = Handler(
    key=ApiKey.SASL_AUTHENTICATE, handle=serve_authentication, refuse=refuse_authentication
)
