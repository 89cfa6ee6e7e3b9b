"""Text as Java reads it: what is no UTF-8 becomes U+FFFD, and nothing is refused for it.

A broker answers a topic whose name is garbage with INVALID_TOPIC_EXCEPTION, so the name must survive parsing.
Source: java.lang.String(byte[], UTF_8), which is how org.apache.kafka.common.protocol.Readable reads strings; asked of Apache Kafka 3.5.2 to 4.4.0.
"""

import codecs

REPLACED = "java-replacement"
"""Name of the error handler: as Python's `replace`, but an encoded surrogate is one mistake and not three."""


def decode_leniently(content: bytes) -> str:
    """Return the text of bytes that may be none."""
    return content.decode("utf-8", REPLACED)


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError), "encoding has no lenient form"
    first, second, third = error.object[error.start], *error.object[error.start + 1 : error.start + 3].ljust(2, b"\x00")
    is_surrogate = first == 0xED and 0xA0 <= second <= 0xBF and 0x80 <= third <= 0xBF
    return "\ufffd", error.start + 3 if is_surrogate else error.end


codecs.register_error(REPLACED, _replace)
