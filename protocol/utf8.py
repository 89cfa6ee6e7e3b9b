"""Text as Java decodes it: invalid UTF-8 becomes U+FFFD, and is no error.

A broker returns INVALID_TOPIC_EXCEPTION for a topic with a garbage name, so the name must survive
decoding.
Source: java.lang.String(byte[], UTF_8), which is how org.apache.kafka.common.protocol.Readable
reads strings; verified on Kafka 3.5.2 to 4.4.0.
"""

import re

from protocol.limits import STRING_SIZE_MAX

SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
"""An encoded surrogate: one error in Java, three in Python.

0xED never continues a character, so that every match begins one.
"""
NO_CHARACTER = b"\xff"
"""One error in both."""
WRONG_BYTES_MAX = STRING_SIZE_MAX // 3


def decode_string(content: bytes) -> str:
    """Return the text of a string; ValueError if it is too long to be encoded again.

    U+FFFD has three bytes, so that 10,923 invalid bytes become more than the longest string of the
    protocol. No response, record or request to another node could contain such a text.
    """
    text = decode_leniently(content)
    if len(content) > WRONG_BYTES_MAX and len(text.encode()) > STRING_SIZE_MAX:
        raise ValueError(
            f"text that is no UTF-8 has more than {STRING_SIZE_MAX} bytes when it is written again"
        )
    return text


def decode_leniently(content: bytes) -> str:
    """Return the text of bytes that may be invalid.

    Python's own `replace` does it in C: a custom error handler would be called for each invalid
    byte, 25 ms for one string of 32,767, and a client may send thousands of those in a request.
    """
    return SURROGATE.sub(NO_CHARACTER, content).decode("utf-8", "replace")
