"""Text as Java reads it: what is no UTF-8 becomes U+FFFD, and nothing is refused for it.

A broker answers a topic whose name is garbage with INVALID_TOPIC_EXCEPTION, so the name must survive parsing.
Source: java.lang.String(byte[], UTF_8), which is how org.apache.kafka.common.protocol.Readable reads strings; asked of Apache Kafka 3.5.2 to 4.4.0.
"""

import re

from protocol.limits import STRING_SIZE_MAX

SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
"""An encoded surrogate: one mistake to Java, three to Python. 0xED never continues a character, so that every match begins one."""
NO_CHARACTER = b"\xff"
"""One mistake to both."""
WRONG_BYTES_MAX = STRING_SIZE_MAX // 3


def decode_string(content: bytes) -> str:
    """Return the text of a string; ValueError for one that is too long to be written again.

    U+FFFD has three bytes, so that 10,923 wrong bytes become more than a string of the protocol can
    hold. No answer could name such a text, no record and no request to another node could have it.
    """
    text = decode_leniently(content)
    if len(content) > WRONG_BYTES_MAX and len(text.encode()) > STRING_SIZE_MAX:
        raise ValueError(f"text that is no UTF-8 has more than {STRING_SIZE_MAX} bytes when it is written again")
    return text


def decode_leniently(content: bytes) -> str:
    """Return the text of bytes that may be none.

    Python's own `replace` does it in C: an error handler of ours would be called for each wrong
    byte, 25 ms for one string of 32,767, and a client may send thousands of those in a request.
    """
    return SURROGATE.sub(NO_CHARACTER, content).decode("utf-8", "replace")
