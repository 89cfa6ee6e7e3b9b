"""The Kafka wire protocol: bytes to objects and back, and nothing else.

    from protocol import codec_of, request_class, response_class

    request = request_class(22)(transactional_id="orders-1", transaction_timeout_ms=60_000)
    content = codec_of(request_class(22), 4).encode(request)
    message, position = codec_of(request_class(22), 4).decode(content)

`codec_of` is compiled code for one message at one version; `Message.construct(version)` is the
construct that it was compiled from.
"""

from protocol.codec.message_codec import compiled as codec_of
from protocol.messages.registry import request_class, response_class

__all__ = ["codec_of", "request_class", "response_class"]
