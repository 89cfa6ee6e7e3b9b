"""The Kafka wire protocol: bytes to objects and back, and nothing else.

    from protocol import codec, request_class, response_class

    request = request_class(22)(transactional_id="orders-1", transaction_timeout_ms=60_000)
    content = codec(request_class(22), 4).encode(request)
    message, position = codec(request_class(22), 4).decode(content)

`codec` is fused code for one message at one version; `Message.construct(version)` is the readable
Construct of the same.
"""

from protocol.message_codec import compiled as codec
from protocol.messages.registry import request_class, response_class

__all__ = ["codec", "request_class", "response_class"]
