"""Single messages without a capture: hex in common notations, and reported guesses."""

import pytest

from kraftsim.inspect.frames import AskedFrame
from kraftsim.inspect.hex_text import NotHex, bytes_of_hex, hexdump, is_hex_text
from kraftsim.inspect.lone import FoundFrame, Hint, dissect_lone
from protocol.messages.k03_metadata import MetadataResponse, MetadataResponseBroker
from protocol.requests import response_chunks
from tests.inspect.conversations import BATCH, EXCHANGES, frames

BYTES = bytes(range(0x0E, 0x2E))


@pytest.mark.parametrize(
    "text",
    [
        BYTES.hex(),
        BYTES.hex(" "),
        BYTES.hex(":").upper(),
        "0x" + BYTES.hex(),
        " ".join(f"0x{byte:02x}," for byte in BYTES),
        "".join(f"\\x{byte:02x}" for byte in BYTES),
        "\n".join(hexdump(BYTES)),
        (
            "00000000: 0e0f 1011 1213 1415 1617 1819 1a1b 1c1d  ................\n00000010: 1e1f "
            "2021 2223 2425 2627 2829 2a2b 2c2d  .. !\"#$%&'()*+,-"
        ),
        (
            "\t0x0000:  0e0f 1011 1213 1415 1617 1819 1a1b 1c1d  ................\n\t0x0010:  1e1f "
            "2021 2223 2425 2627 2829 2a2b 2c2d  ...!\"#$%&'()*+,-"
        ),
        "0000   0e 0f 10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d   ................\n"
        "0010   1e 1f 20 21 22 23 24 25 26 27 28 29 2a 2b 2c 2d   .. !\"#$%&'()*+,-",
    ],
    ids=[
        "plain",
        "spaces",
        "colons",
        "0x",
        "C",
        "escapes",
        "hexdump",
        "xxd",
        "tcpdump",
        "wireshark",
    ],
)
def test_hex_is_read_in_common_notations(text: str) -> None:
    assert bytes_of_hex(text) == BYTES
    assert is_hex_text(text.encode())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "there are no hex digits"),
        ("abc", "3 hex digits are no whole bytes"),
        ("00 0g", "'g' is no hex digit"),
    ],
)
def test_invalid_hex_is_reported(text: str, complaint: str) -> None:
    with pytest.raises(NotHex, match=complaint):
        bytes_of_hex(text)


def test_a_hexdump_marks_a_byte_in_its_context() -> None:
    lines = list(hexdump(bytes(range(200)), marked=100))
    assert lines[0].strip() == "... 64 bytes before" and lines[-1].strip() == "... 56 bytes behind"
    mark = lines.index(next(line for line in lines if "^^" in line))
    column = lines[mark].index("^^")
    assert lines[mark - 1][column : column + 2] == "64" and "byte 100" in lines[mark]


def lone(content: bytes, hint: Hint | AskedFrame = Hint.NOTHING) -> list[FoundFrame]:
    return list(dissect_lone(content, hint))


@pytest.mark.parametrize("with_size", [True, False])
@pytest.mark.parametrize("number", range(len(EXCHANGES)))
def test_requests_are_guessed_by_their_headers(number: int, with_size: bool) -> None:
    key, version, _, _ = EXCHANGES[number]
    content = frames()[2 * number][1]
    (found,) = lone(content if with_size else content[4:])
    assert found.frame is not None and found.said == "a request, as its header says"
    assert (found.frame.api_key, found.frame.api_version, found.frame.tree.troubles) == (
        key,
        version,
        [],
    )


def test_a_response_that_only_one_api_can_have_sent_is_guessed() -> None:
    body = MetadataResponse(
        cluster_id="kraft", brokers=[MetadataResponseBroker(node_id=1, host="localhost", port=9092)]
    )
    content = b"".join(response_chunks(3, 8, 1, body))
    (found,) = lone(content)
    assert found.frame is not None and (found.frame.api_key, found.frame.tree.troubles) == (3, [])
    assert found.said == "a response to Metadata v8: nothing else fits"
    (as_given,) = lone(content, AskedFrame(3, 8))
    assert as_given.frame is not None and (as_given.frame.api_version, as_given.said) == (8, "")


def test_an_ambiguous_response_lists_the_other_candidates() -> None:
    (found,) = lone(bytes.fromhex("0000000a 00000001 00000000 001b"))
    assert found.frame is not None and found.frame.tree.is_whole
    assert "others fit as well: " in found.said and found.said.endswith(
        "(use --response API VERSION)"
    )


def test_consecutive_frames_are_separated() -> None:
    requests = [frame for from_client, frame in frames() if from_client]
    found = lone(b"".join(requests))
    assert [each.frame.api_key for each in found if each.frame is not None] == [
        key for key, *_ in EXCHANGES
    ]
    assert found[1].start == len(requests[0]) + 4, "positions are relative to the whole input"


def test_a_truncated_frame_is_reported() -> None:
    (found,) = lone(frames()[0][1][:-3])
    assert found.tree.troubles[-1].reason == (
        f"the frame is truncated: its size is {len(frames()[0][1]) - 4} bytes, "
        f"{len(frames()[0][1]) - 7} are present"
    )


@pytest.mark.parametrize("hint", [Hint.NOTHING, Hint.REQUEST])
@pytest.mark.parametrize("missing_bytes", [1, 9])
def test_a_request_with_a_wrong_size_prefix_is_read(hint: Hint, missing_bytes: int) -> None:
    content = frames()[0][1]
    announced = len(content) - 4 - missing_bytes
    (found,) = lone(announced.to_bytes(4) + content[4:], hint)
    key, version, _, _ = EXCHANGES[0]
    assert found.frame is not None and (found.frame.api_key, found.frame.api_version) == (
        key,
        version,
    )
    assert [trouble.reason for trouble in found.tree.troubles] == [
        f"its size is {announced} bytes, {len(content) - 4} are present"
    ]


def test_batches_are_guessed_by_their_checksum_and_damaged_ones_by_their_shape() -> None:
    (found,) = lone(BATCH * 2)
    assert len(found.tree.parts) == 2 and "checksum" in found.said
    (found,) = lone(BATCH[:-1] + b"\x01")
    assert (
        len(found.tree.parts) == 1 and "lengths and formats" in found.said and found.tree.troubles
    )


def test_unrecognised_bytes_are_reported() -> None:
    (found,) = lone(b"\xff" * 40)
    assert (
        found.frame is None
        and found.said == "neither a request, nor a response to anything known, nor a batch"
    )
