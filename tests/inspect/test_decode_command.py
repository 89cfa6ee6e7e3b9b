"""`kraftsim decode` as users and scripts call it: its inputs, output and exit codes."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftsim.cli.main import kraftsim
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.requests import request_chunks, response_chunks
from tests.inspect.conversations import BATCH, EXPECTED, conversation, frames
from tests.inspect.packets import Conversation, pcap

REQUEST = b"".join(
    request_chunks(
        22, 4, 7, "me", InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    )
)
RESPONSE = b"".join(
    response_chunks(22, 4, 7, InitProducerIdResponse(error_code=53, producer_id=-1))
)


def decode(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(
        kraftsim, ["decode", *map(str, arguments)], input=stdin, standalone_mode=False
    )


def ending(result: Result) -> object:
    """Return the exit code of the process."""
    exception = result.exception
    return (
        getattr(exception, "exit_code", exception) if exception is not None else result.return_value
    )


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    file = tmp_path / "talk.pcap"
    file.write_bytes(pcap(conversation().packets))
    return file


@pytest.mark.parametrize(
    "way",
    ["argument", "several arguments", "standard input", "binary file", "binary input", "hex file"],
)
def test_a_frame_is_read_from_argument_file_or_stdin(way: str, tmp_path: Path) -> None:
    file = tmp_path / "frame.bin"
    file.write_bytes(REQUEST if way == "binary file" else REQUEST.hex(" ", 4).encode())
    ways: dict[str, tuple[Sequence[str | Path], bytes | None]] = {
        "argument": ([REQUEST.hex()], None),
        "several arguments": (REQUEST.hex(" ").split(), None),
        "standard input": ([], REQUEST.hex(":").encode()),
        "binary file": ([file], None),
        "binary input": (["-"], REQUEST),
        "hex file": ([file], None),
    }
    arguments, stdin = ways[way]
    said = decode(*arguments, stdin=stdin)
    assert (
        said.stdout.splitlines()
        == [
            "guessed: a request, as its header says",
            'InitProducerId v4 request  correlation 7  client "me"  34 bytes',
            "      4  header",
            "      4    request_api_key: 22  (InitProducerId)",
            "      6    request_api_version: 4",
            "      8    correlation_id: 7",
            '     12    client_id: "me"',
            "     17  body",
            '     17    transactional_id: "t"',
            "     19    transaction_timeout_ms: 1000",
            "     23    producer_id: -1",
            "     31    producer_epoch: -1",
        ][: len(said.stdout.splitlines())]
    )
    assert ending(said) == 0


@pytest.mark.parametrize("name", ["InitProducerId", "init_producer_id", "INIT-PRODUCER-ID", "22"])
def test_a_response_is_decoded_as_the_given_api_and_version(name: str) -> None:
    said = decode("--response", name, "v4", RESPONSE.hex())
    assert (
        "error_code: 53  (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)" in said.stdout
        and "guessed" not in said.stdout
    )
    assert ending(said) == 0


def test_unreadable_frames_are_marked_and_the_rest_is_decoded() -> None:
    """A string that is longer than its frame; the next frame is read."""
    wrong = REQUEST.replace(b"\x02t", b"\x7ft")
    said = decode("--request", (wrong + REQUEST).hex())
    lines = said.stdout.splitlines()
    trouble = lines.index("     !! transactional_id, byte 18: 126 bytes are needed, 16 are left")
    assert lines[trouble + 3].endswith("^^ byte 18") and lines[trouble + 2][
        lines[trouble + 3].index("^^") :
    ].startswith("74 ")
    assert sum("v4 request" in line for line in lines) == 2 and ending(said) == 1


def test_brief_output_has_one_line_per_frame(capture: Path) -> None:
    said = decode(capture, "--brief")
    lines = said.stdout.splitlines()
    assert len(lines) == len(EXPECTED)
    assert lines[0].endswith(
        '127.0.0.1:50000 -> 127.0.0.2:9092  ApiVersions v3 request  correlation 0  client "me"  '
        "20 bytes"
    )
    assert (
        "127.0.0.1:50000 <- 127.0.0.2:9092  ApiVersions v3 response  correlation 0  answers #1 "
        "after 0.001 ms"
    ) in lines[1]
    assert (
        said.stderr == f"{len(EXPECTED)} frames in {len(conversation().packets)} packets\n"
        and ending(said) == 0
    )


def test_json_output_has_one_object_per_frame(capture: Path) -> None:
    said = decode(capture, "--json")
    rows = [json.loads(line) for line in said.stdout.splitlines()]
    assert [
        (row["api_key"], row["version"], row["correlation_id"], row["way"]) for row in rows
    ] == EXPECTED
    produce = rows[4]
    batch = produce["body"]["topic_data"][0]["partition_data"][0]["records"][0]
    assert (batch["producer_id"], batch["crc_means"], len(batch["records"])) == (7, "ok", 400)
    assert batch["records"][3]["key"] == "3"
    start, end = produce["offsets"]["body.topic_data[0].name"]
    assert frames()[4][1][start:end] == b"\x07orders"
    assert (
        rows[5]["body"]["responses"][0]["partition_responses"][0]["error_code_means"]
        == "NOT_LEADER_OR_FOLLOWER"
    )
    assert rows[7]["body"]["responses"][0]["topic_id_means"] == "topic orders", (
        "learned from Metadata"
    )
    assert rows[1]["answers"] == 1 and rows[1]["after_ms"] == 0.001
    without = [
        json.loads(line) for line in decode(capture, "--json", "--no-offsets").stdout.splitlines()
    ]
    assert "offsets" not in without[0] and without[4]["body"] == produce["body"]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--api", "Produce"], [4, 5]),
        (["--api", "produce", "--api", "1"], [4, 5, 6, 7]),
        (["--limit", "3"], [0, 1, 2]),
        (["--limit", "1", "--api", "Fetch"], [6]),
        (["--port", "9092"], list(range(10))),
    ],
)
def test_frames_of_a_capture_can_be_filtered(
    capture: Path, options: list[str], shown: list[int]
) -> None:
    rows = [json.loads(line) for line in decode(capture, "--json", *options).stdout.splitlines()]
    assert [row["number"] - 1 for row in rows] == shown


def test_records_are_decoded_unless_disabled(capture: Path) -> None:
    assert "value 399" not in decode(capture, "--no-records").stdout
    shown = decode(capture).stdout
    assert (
        'key "399"  value "value 399value 399value 399value 399value 399"' in shown
        and "400 records, no compression, producer_id 7" in shown
    )


@pytest.mark.parametrize(("options", "has_fields"), [([], False), (["--full"], True)])
def test_long_values_are_shortened_unless_fields_are_shown(
    options: list[str], has_fields: bool
) -> None:
    said = decode(
        "--request",
        *options,
        b"".join(
            request_chunks(22, 4, 7, "me", InitProducerIdRequest(transactional_id="x" * 500))
        ).hex(),
    )
    assert ("x" * 500 in said.stdout) == has_fields
    assert ('..." (500 characters)' in said.stdout) == (not has_fields)


def test_colours_are_shown_only_on_request(capture: Path) -> None:
    """Not in a pipe; in a terminal, or with --colour."""
    assert "\x1b[" not in decode(capture).stdout
    assert "\x1b[36m" in decode(capture, "--colour").stdout
    assert "\x1b[" not in decode(capture, "--colour", "--json").stdout


def test_uncaptured_bytes_are_reported_apart_from_malformed_frames(tmp_path: Path) -> None:
    """Not malformed, but not completely read either."""
    file = tmp_path / "half.pcap"
    file.write_bytes(pcap(conversation(opened=False).packets[1:]))
    said = decode(file)
    assert ending(said) == 2
    assert (
        "bytes of the node are left out: the capture begins in the middle of the conversation"
        in said.stdout
    )


def test_an_unknown_version_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "future.pcap"
    unknown = REQUEST[:6] + b"\x00\x0a" + REQUEST[8:]
    file.write_bytes(pcap(Conversation().open().send(unknown, from_client=True).packets))
    said = decode(file)
    assert (
        ending(said) == 2
        and "InitProducerId v10 is not known here; the body stays shut" in said.stdout
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["zz"], "zz: no such file, and not hex: 'z' is no hex digit"),
        (["--request", "--batch", "00"], "give only one of --request, --response and --batch"),
        (
            ["--response", "InitProducer", "4", "00"],
            "no API is called InitProducer; did you mean INIT_PRODUCER_ID?",
        ),
        (
            ["--response", "InitProducerId", "99", "00"],
            "of InitProducerId versions 0 to 6 can be read here, not 99",
        ),
        (["--response", "InitProducerId", "new", "00"], "write the version as a number"),
        (["--api", "9999x", "00"], "no API is called 9999x"),
    ],
)
def test_impossible_requests_are_reported(arguments: list[str], complaint: str) -> None:
    said = decode(*arguments)
    assert ending(said) == 3 and complaint in str(getattr(said.exception, "message", ""))


def test_a_capture_without_kafka_traffic_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "web.pcap"
    file.write_bytes(
        pcap(
            Conversation()
            .open()
            .send(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", from_client=True)
            .packets
        )
    )
    said = decode(file)
    assert ending(said) == 3
    assert (
        "no frame of Kafka in 4 packets, 4 of them TCP; connections left out: 1 not like Kafka"
        in str(getattr(said.exception, "message", ""))
    )


def test_batches_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "batches.bin"
    file.write_bytes(BATCH)
    said = decode(file, "--batch")
    assert said.stdout.splitlines()[0] == f"1 record batches, {len(BATCH)} bytes"
    assert "     43        producer_id: 7" not in said.stdout and "producer_id: 7" in said.stdout
    assert ending(said) == 0
