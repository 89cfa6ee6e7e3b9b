"""Integers in Kafka's text files: exactly the syntax that Java accepts."""

from collections.abc import Callable

import pytest

from protocol.malformed import MalformedFile
from protocol.storage.text_files import (
    parse_int32,
    parse_int64,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
)


@pytest.mark.parametrize(
    "parse, text, value",
    [
        (parse_int32, "2147483647", 2**31 - 1),
        (parse_int32, "-2147483648", -(2**31)),
        (parse_int32, "+007", 7),
        (parse_int64, "9223372036854775807", 2**63 - 1),
        (parse_int64, "-9223372036854775808", -(2**63)),
    ],
)
def test_plain_digits_in_range_are_a_number(
    parse: Callable[[str], int], text: str, value: int
) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "-", "1_0", " 1", "1 ", "\u0663", "1e3", "0x1", "9" * 5000, "2147483648", "-2147483649"],
)
def test_numbers_that_java_refuses_are_refused(text: str) -> None:
    """Python's int() accepts six of these."""
    with pytest.raises(ValueError):
        parse_int32(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809"])
def test_an_out_of_range_offset_makes_the_file_malformed(text: str) -> None:
    with pytest.raises(ValueError):
        parse_int64(text)
    with pytest.raises(MalformedFile):
        parse_offset_checkpoint(f"0\n1\norders 0 {text}\n".encode())
    with pytest.raises(MalformedFile):
        parse_leader_epoch_checkpoint(f"0\n1\n1 {text}\n".encode())
