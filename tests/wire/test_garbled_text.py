"""Invalid UTF-8 is decoded as in Java, unless the result could not be encoded again.

Source: java.lang.String(byte[], UTF_8).
"""

from itertools import product

import pytest

from protocol.codec.message_codec import compiled, construct_of
from protocol.limits import STRING_SIZE_MAX
from protocol.malformed import MalformedMessage
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from protocol.requests import read_request_head
from protocol.utf8 import decode_leniently, decode_string

WRONG = "\ufffd"
AS_JAVA = {
    b"": "",
    b"a\xffb": f"a{WRONG}b",
    b"\xed\xa0\x80": WRONG,
    b"\xed\xa0\x80\xed\xbf\xbf": WRONG * 2,
    b"\xed\xa0": WRONG * 2,
    b"\xe2\x82": WRONG,
    b"\xe2\x82\xed\xa0\x80": WRONG * 2,
    b"\xe2\x82\xac": "\u20ac",
    b"\xf0\x9f\x98": WRONG,
    b"\xc0\x80": WRONG * 2,
}
LONGEST_WRONG = STRING_SIZE_MAX // 3


@pytest.mark.parametrize("content", AS_JAVA)
def test_invalid_bytes_become_replacement_characters(content: bytes) -> None:
    assert decode_leniently(content) == decode_string(content) == AS_JAVA[content]


def test_an_encoded_surrogate_is_one_error_at_any_position() -> None:
    """Valid UTF-8 is decoded normally."""
    for before, after in product(
        (b"", b"a", b"\xe2\x82", b"\xed", b"\xed\xa0", b"\xf0\x9f"), repeat=2
    ):
        alone = len(decode_leniently(before)) + len(decode_leniently(after))
        assert len(decode_leniently(before + b"\xed\xb0\x80" + after)) == alone + 1
    assert decode_leniently("größer 日本 😀".encode()) == "größer 日本 😀"


@pytest.mark.parametrize("version", [0, 3], ids=["plain", "compact"])
def test_a_string_that_cannot_be_reencoded_is_refused(version: int) -> None:
    """The longest possible one is read; fused codec and reference agree."""
    for count, is_read in (
        (LONGEST_WRONG, True),
        (LONGEST_WRONG + 1, False),
        (STRING_SIZE_MAX, False),
    ):
        data = (
            compiled(FindCoordinatorRequest, version)
            .encode(FindCoordinatorRequest(key="k" * count))
            .replace(b"k" * count, b"\xff" * count)
        )
        for read in (
            compiled(FindCoordinatorRequest, version).parse,
            construct_of(FindCoordinatorRequest, version).parse,
        ):
            if is_read:
                assert read(data).key == WRONG * count
            else:
                with pytest.raises(MalformedMessage, match="written again"):
                    read(data)


def test_a_client_id_that_cannot_be_reencoded_is_refused() -> None:
    frame = b"\x00\x03\x00\x00\x00\x00\x00\x07" + (20_000).to_bytes(2) + b"\xff" * 20_000
    with pytest.raises(MalformedMessage, match="written again"):
        read_request_head(frame + bytes(4))
