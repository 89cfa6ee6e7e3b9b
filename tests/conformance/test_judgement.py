"""The judge itself: it must be able to say no."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from kraftsim.conformance.expect import Unmet, expect, expect_equal, expect_error
from kraftsim.conformance.peer import Peer, PeerClosed, PeerSilent, framed, split_address
from kraftsim.conformance.requirement import Requirement
from kraftsim.conformance.runner import all_requirements, judge
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse


@contextmanager
def node_that_says(answer: bytes | None) -> Iterator[str]:
    """A node that answers every connection with the same bytes and closes; with None it says nothing and stays."""
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


@pytest.mark.parametrize(
    "unmet",
    [lambda: expect(False, "no"), lambda: expect_equal(1, 2, "a number"), lambda: expect_error(3, ErrorCode.NONE, "an error")],
)
def test_an_expectation_that_fails_is_unmet(unmet):
    with pytest.raises(Unmet):
        unmet()


def test_an_unmet_error_code_is_told_by_its_name():
    with pytest.raises(Unmet, match="the answer: expected 0 NONE, got 45 OUT_OF_ORDER_SEQUENCE_NUMBER"):
        expect_error(45, ErrorCode.NONE, "the answer")


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [(b"", PeerClosed), (framed(b"\x00\x00")[:3], PeerClosed), (None, PeerSilent)],
)
def test_a_peer_tells_silence_from_a_closed_connection(answer, trouble):
    with node_that_says(answer) as address, Peer.at(address, timeout_seconds=0.3) as peer, pytest.raises(trouble):
        peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)


def test_an_answer_to_another_request_is_no_answer():
    stranger = framed((77).to_bytes(4) + b"\x00\x00" + b"\x00\x00\x00\x00")
    with node_that_says(stranger) as address, Peer.at(address) as peer, pytest.raises(PeerClosed, match="77"):
        peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)


@pytest.mark.parametrize("answer", [b"", framed(b"\x00\x00\x00\x01\x00\x00"), framed(b"\x00\x00\x00\x01" + bytes(6))])
def test_a_node_that_answers_badly_meets_no_requirement_of_api_versions(answer):
    """No answer, an answer cut short, and a well-formed answer that offers nothing."""
    with node_that_says(answer) as address:
        findings = [judge(requirement, Target(address)) for requirement in all_requirements(["api_versions"])]
    assert findings
    needing_nothing = {"AllocateProducerIds and the other APIs between brokers and controllers are not advertised to clients"}
    assert {finding.requirement.sentence for finding in findings if finding.is_met} <= needing_nothing


def test_a_node_that_is_not_there_is_no_finding():
    requirement = Requirement(api="x", sentence="s", source="s", check=lambda target: target.peer().close())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        judge(requirement, Target(f"127.0.0.1:{port}"))


def test_every_requirement_has_a_sentence_and_a_source_of_its_own():
    requirements = all_requirements()
    assert len(requirements) >= 100
    assert all(requirement.source.strip() and requirement.sentence.strip() for requirement in requirements)
    assert len({(requirement.api, requirement.sentence) for requirement in requirements}) == len(requirements)
    assert len({requirement.check for requirement in requirements}) == len(requirements), "a check is written twice"


def test_what_came_later_is_left_out_for_an_older_release():
    named = [Requirement(api="x", sentence="s", source="s", check=lambda target: None, since=since) for since in ("", "3.5", "3.6", "3.10", "4.0")]
    assert [each.since for each in named if each.holds_for("3.6")] == ["", "3.5", "3.6"]
    assert all(each.holds_for("") for each in named)
    assert len(all_requirements(release="3.5")) < len(all_requirements())


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:", ":9092", "127.0.0.1:port"])
def test_an_address_is_host_and_port(address):
    with pytest.raises(ValueError, match="HOST:PORT"):
        split_address(address)
