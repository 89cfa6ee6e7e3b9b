"""The conformance suite itself: it must be able to fail."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from kraftsim.conformance.expect import Unmet, expect, expect_equal, expect_error
from kraftsim.conformance.peer import Peer, PeerClosed, PeerSilent, framed, split_address
from kraftsim.conformance.requirement import Check, Requirement, Requirements, all_requirements
from kraftsim.conformance.runner import RequirementVerdict, check
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.conformance.fake_node import Answering, CloseConnection, api_versions_0, fake_node


@contextmanager
def node_that_sends(answer: bytes | None) -> Iterator[str]:
    """A node that sends the same bytes on every connection and closes it; with None it sends
    nothing and keeps it open.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def speak(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(answer or b"")

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                if answer is None:
                    held.append(connection)
                    continue
                threading.Thread(target=speak, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()


def made(check: Check, since: str = "", until: str = "") -> Requirement:
    """A requirement in its own section."""
    section = Requirements("wire", 99, "Made up")
    section.that(1, "a sentence", source="nowhere", since=since, until=until)(check)
    return section.entries[0]


@pytest.mark.parametrize(
    "unmet",
    [
        lambda: expect(False, "no"),
        lambda: expect_equal(1, 2, "a number"),
        lambda: expect_error(3, ErrorCode.NONE, "an error"),
    ],
)
def test_an_expectation_that_fails_is_unmet(unmet: Callable[[], object]) -> None:
    with pytest.raises(Unmet):
        unmet()


def test_an_unexpected_error_code_is_shown_by_name() -> None:
    with pytest.raises(
        Unmet, match="the answer: expected 0 NONE, got 45 OUT_OF_ORDER_SEQUENCE_NUMBER"
    ):
        expect_error(45, ErrorCode.NONE, "the answer")


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [(b"", PeerClosed), (framed(b"\x00\x00")[:3], PeerClosed), (None, PeerSilent)],
)
def test_a_peer_distinguishes_silence_from_a_closed_connection(
    answer: bytes | None, trouble: type[OSError]
) -> None:
    with (
        node_that_sends(answer) as address,
        Peer.at(address, timeout_seconds=0.3) as peer,
        pytest.raises(trouble),
    ):
        peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)


def test_a_response_to_another_request_is_not_accepted() -> None:
    stranger = framed((77).to_bytes(4) + b"\x00\x00" + b"\x00\x00\x00\x00")
    with (
        node_that_sends(stranger) as address,
        Peer.at(address) as peer,
        pytest.raises(PeerClosed, match="77"),
    ):
        peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)


@pytest.mark.parametrize(
    "answer", [b"", framed(b"\x00\x00\x00\x01\x00\x00"), framed(b"\x00\x00\x00\x01" + bytes(6))]
)
def test_a_node_with_bad_responses_meets_no_api_versions_requirement(answer: bytes) -> None:
    """No response, a truncated response, and a well-formed response without APIs."""
    with node_that_sends(answer) as address:
        findings = [
            check(requirement, Target(address))
            for requirement in all_requirements(["api-versions", "wire/4"])
        ]
    assert findings
    assert [finding.requirement.label for finding in findings if finding.is_met] == []


def test_an_unreachable_node_is_not_a_finding() -> None:
    requirement = made(lambda target: target.peer().close())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        check(requirement, Target(f"127.0.0.1:{port}"))


def test_every_requirement_has_a_unique_number_sentence_and_source() -> None:
    requirements = all_requirements()
    assert len(requirements) >= 240
    assert all(
        requirement.source.strip() and requirement.sentence.strip() for requirement in requirements
    )
    for what in ("label", "check"):
        assert len({getattr(requirement, what) for requirement in requirements}) == len(
            requirements
        ), f"a {what} is used twice"
    assert len(
        {(requirement.section.label, requirement.sentence) for requirement in requirements}
    ) == len(requirements)


def test_the_wire_section_has_at_least_sixty_requirements() -> None:
    assert len(all_requirements(["wire"])) >= 60


@pytest.mark.parametrize(
    ("since", "until", "release", "holds"),
    [
        ("", "", "3.6", True),
        ("3.5", "", "3.6", True),
        ("3.6", "", "3.6", True),
        ("3.10", "", "3.6", False),
        ("4.0", "", "3.6", False),
        ("", "3.5", "3.6", False),
        ("", "3.9", "3.6", True),
        ("4.0", "", "", True),
        ("", "3.9", "", False),
    ],
)
def test_a_requirement_holds_from_or_until_the_release_it_names(
    since: str, until: str, release: str, holds: bool
) -> None:
    """The empty release is the newest one."""
    assert made(lambda target: None, since=since, until=until).holds_for(release) is holds


@pytest.mark.parametrize(
    ("pattern", "labels"),
    [
        ("wire/1.2", ["wire/1.2"]),
        ("WIRE/1.2", ["wire/1.2"]),
        ("wire/1.[23]", ["wire/1.2", "wire/1.3"]),
        ("byte by byte", ["wire/1.6"]),
        ("produce/2.1", ["produce/2.1"]),
    ],
)
def test_a_pattern_selects_numbers_sections_or_words(pattern: str, labels: list[str]) -> None:
    assert [requirement.label for requirement in all_requirements([pattern])] == labels


def test_a_section_pattern_does_not_match_a_longer_number() -> None:
    assert {requirement.section.label for requirement in all_requirements(["wire/1"])} == {"wire/1"}
    assert {requirement.section.chapter for requirement in all_requirements(["produce"])} == {
        "produce"
    }


def test_a_pattern_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(KeyError, match="wire/99"):
        all_requirements(["wire", "wire/99"])


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:", ":9092", "127.0.0.1:port"])
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        split_address(address)


def hangs_up(frame: bytes) -> bytes | None:
    """A node that closes a connection at the first request."""
    raise CloseConnection


def answers_zeros(frame: bytes) -> bytes | None:
    """A node that advertises many APIs, and sends zeros for every request, which may parse as a
    response.
    """
    ranges = dict.fromkeys(range(70), (0, 9))
    return api_versions_0(frame, ranges) if frame[:2] == b"\x00\x12" else frame[4:8] + bytes(64)


MET_BY_SILENCE = {"wire/1.3", "wire/9.4"}
"""Requirements about silence and closed connections."""
MET_BY_ZEROS = MET_BY_SILENCE | {
    *(
        "wire/4.1",
        "wire/4.2",
        "wire/4.12",
        "wire/4.13",
        "wire/4.14",
    ),  # ApiVersions responses are valid
    *(
        "wire/5.12",
        "wire/7.6",
        "wire/7.9",
        "wire/7.15",
    ),  # any response is sufficient, or equal responses
    *("wire/9.2", "wire/9.5", "wire/9.6", "wire/9.8"),  # connections are opened and closed
    *(
        "api-versions/1.1",
        "api-versions/1.3",
        "controller/1.1",
        "controller/1.3",
    ),  # the list has the required length
    "init-producer-id/1.6",  # a producer id of 0
}


@pytest.mark.parametrize(
    ("answering", "met_at_most"), [(hangs_up, MET_BY_SILENCE), (answers_zeros, MET_BY_ZEROS)]
)
def test_a_node_that_does_everything_wrong_meets_few_requirements(
    answering: Answering, met_at_most: set[str]
) -> None:
    """A check that any node passes is useless."""
    with fake_node(answering) as address:
        target = Target(address, address)
        findings = [check(requirement, target, seconds=0.4) for requirement in all_requirements()]
    met = {
        finding.requirement.label
        for finding in findings
        if finding.verdict is RequirementVerdict.MET
    }
    assert met <= met_at_most


def test_a_topic_is_requested_again_while_the_node_knows_of_no_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker in ZooKeeper mode listens before its controller has sent it a list of brokers."""
    codes = [ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_FACTOR]
    name = b"slow"

    def answering(frame: bytes) -> bytes:
        key = int.from_bytes(frame[:2])
        if key == ApiKey.API_VERSIONS:
            return api_versions_0(
                frame, {ApiKey.API_VERSIONS: (0, 0), ApiKey.CREATE_TOPICS: (0, 0)}
            )
        code = codes.pop() if codes else ErrorCode.NONE
        return frame[4:8] + (1).to_bytes(4) + len(name).to_bytes(2) + name + code.to_bytes(2)

    led = TargetTopic(name=name.decode(), topic_id=bytes(16), leader="")
    with fake_node(answering) as address:
        target = Target(address)
        monkeypatch.setattr(target, "led_topic", lambda *_: led)
        assert target.topic(name=name.decode()) is led
    assert not codes
