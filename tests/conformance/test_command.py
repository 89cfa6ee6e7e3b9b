"""`kraftsim conformance`: its output, files and exit code, for good, bad, hanging and crashing
nodes.
"""

import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from kraftsim.cli import conformance_output
from kraftsim.cli.main import kraftsim
from kraftsim.conformance import runner
from tests.conformance.fake_node import (
    SILENT,
    Answering,
    CloseConnection,
    api_versions_0,
    asks_api_versions,
    fake_node,
)

SANE = {1: (4, 17), 3: (0, 12), 18: (0, 2)}
UPSIDE_DOWN = {3: (0, 12), 1: (4, 17), 18: (0, 2)}
RANGES_ARE_SANE = "wire/4.2"
AFTER_METADATA = "wire/4.9"


def conformance(*arguments: str) -> int:
    """Run the command and return its exit code."""
    try:
        status: int = kraftsim.main(["conformance", *arguments], standalone_mode=False)
    except click.ClickException as trouble:
        trouble.show()
        return trouble.exit_code
    return status


def advertising(ranges: Mapping[int, tuple[int, int]]) -> Answering:
    """A node that responds to ApiVersions and closes the connection on everything else."""

    def answer(frame: bytes) -> bytes | None:
        if not asks_api_versions(frame):
            raise CloseConnection
        return api_versions_0(frame, ranges)

    return answer


def test_met_requirements_exit_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_node(advertising(SANE)) as address:
        assert conformance("--bootstrap", f"{address},127.0.0.1:1", "--only", RANGES_ARE_SANE) == 0
    said = capsys.readouterr().out
    assert f"✓ {RANGES_ARE_SANE}" in said and "1 requirements: 1 met, 0 not met" in said
    assert (
        f"{address} is checked as Apache Kafka 3.9: it supports Fetch up to version 17 and "
        "returns no features"
    ) in said


def test_an_unmet_requirement_exits_with_1_and_shows_the_exchange(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with fake_node(advertising(UPSIDE_DOWN)) as address:
        assert conformance("--bootstrap", address, "--only", RANGES_ARE_SANE) == 1
    said = capsys.readouterr().out
    for part in (
        f"✗ {RANGES_ARE_SANE}",
        "source    KIP-35",
        "what      api keys in ascending order, each once",
        "expected  [1, 3, 18]",
        "came      [3, 1, 18]",
        (
            "> 34 bytes: ApiVersions v0, correlation id 1, client id 'kraftsim-conformance': "
            "ApiVersionsRequest("
        ),
        "0000 001e 0012 0000 0000 0001 0014",
        (
            "< 28 bytes: ApiVersions v0, correlation id 1: ApiVersionsResponse(error_code=0, "
            "api_keys=[ApiVersion(api_key=3"
        ),
        "0000 0001 0000 0000 0003 0003 0000 000c",
        f"not met: {RANGES_ARE_SANE}",
    ):
        assert part in said, part


def test_a_check_that_hangs_times_out_as_not_met(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(frame: bytes) -> bytes | None:
        return api_versions_0(frame, SANE) if asks_api_versions(frame) else SILENT

    started = time.monotonic()
    with fake_node(answer) as address:
        assert conformance("--bootstrap", address, "--only", AFTER_METADATA, "--timeout", "1") == 1
    assert time.monotonic() - started < 5
    said = capsys.readouterr().out
    assert "the check ran out of time" in said and "all responses within 1 s" in said


@pytest.mark.parametrize(
    "answer", [lambda frame: SILENT, lambda frame: b"\x00", lambda frame: b"\x00" * 3]
)
def test_a_node_without_api_versions_cannot_be_tested(
    answer: Answering, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "ALIVE_SECONDS", 0.3)
    with fake_node(answer) as address:
        assert conformance("--bootstrap", address, "--only", "wire") == 3
    assert (
        f"{address} could not be checked: it does not answer ApiVersions" in capsys.readouterr().err
    )


def test_an_address_without_a_listener_cannot_be_tested(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    assert conformance("--bootstrap", address) == 3
    assert "could not be checked" in capsys.readouterr().err


def test_a_node_that_crashes_during_a_check_ends_the_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runner, "ALIVE_SECONDS", 0.3)
    is_dead = False

    def answer(frame: bytes) -> bytes | None:
        nonlocal is_dead
        is_dead = is_dead or not asks_api_versions(frame)
        if is_dead:
            raise CloseConnection
        return api_versions_0(frame, SANE)

    with fake_node(answer) as address:
        only = ("--only", AFTER_METADATA, "--only", "wire/9")
        assert (
            conformance("--bootstrap", address, *only, "--json", str(tmp_path / "found.json")) == 3
        )
    said = capsys.readouterr()
    assert f"it does not respond any more after {AFTER_METADATA}" in said.err
    assert "1 not met, 8 not checked" in said.out
    found = json.loads((tmp_path / "found.json").read_text())
    assert AFTER_METADATA in found["could_not_be_judged"] and len(found["findings"]) == 1


def test_an_unreachable_node_is_an_error_in_junit_xml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty document without errors would pass in every CI system."""
    monkeypatch.setattr(runner, "ALIVE_SECONDS", 0.3)
    file = tmp_path / "found.xml"
    with fake_node(lambda frame: SILENT) as address:
        assert conformance("--bootstrap", address, "--only", "wire", "--junit", str(file)) == 3
    root = ElementTree.fromstring(file.read_bytes())
    assert root.attrib.items() >= {"tests": "1", "failures": "0", "errors": "1"}.items()
    assert [(suite.get("name"), suite.get("errors")) for suite in root] == [("node", "1")]
    error = root.find("./testsuite/testcase/error")
    assert error is not None and "does not answer ApiVersions" in error.attrib["message"]


def test_the_first_bootstrap_address_that_answers_is_tested(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with fake_node(advertising(SANE)) as address:
        assert conformance("--bootstrap", f"127.0.0.1:1, {address}", "--only", RANGES_ARE_SANE) == 0
    assert f"{address} is checked" in capsys.readouterr().out


def test_each_address_is_named_when_none_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance("--bootstrap", "127.0.0.1:1,127.0.0.1:2", "--only", RANGES_ARE_SANE) == 3
    said = capsys.readouterr().err
    assert (
        said.count("it does not answer ApiVersions") == 2
        and "127.0.0.1:1: it" in said
        and "127.0.0.1:2: it" in said
    )


def test_a_patch_release_is_tested_as_its_release_line(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_node(advertising(SANE)) as address:
        assert (
            conformance("--bootstrap", address, "--only", RANGES_ARE_SANE, "--release", "3.9.2")
            == 0
        )
    assert "is checked as Apache Kafka 3.9: as asked" in capsys.readouterr().out


def test_checks_that_cannot_run_are_skipped_and_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with fake_node(advertising(SANE)) as address:
        assert (
            conformance("--bootstrap", address, "--only", "controller/1.1", "--only", "wire/4.15")
            == 0
        )
    said = capsys.readouterr().out
    assert "[no controller address is given]" in said
    assert "[applies since 4.0; the node is checked as 3.9]" in said
    assert "0 met, 0 not met, 2 skipped" in said


def test_the_release_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_node(advertising(SANE)) as address:
        assert conformance("--bootstrap", address, "--only", "wire/4.15", "--release", "4.0") == 1
    assert "is checked as Apache Kafka 4.0: as asked" in capsys.readouterr().out


def test_json_output_matches_the_text_output(capsys: pytest.CaptureFixture[str]) -> None:
    with fake_node(advertising(UPSIDE_DOWN)) as address:
        assert conformance("--bootstrap", address, "--only", RANGES_ARE_SANE, "--json", "-") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["bootstrap"], found["release"], found["could_not_be_judged"]) == (
        address,
        "3.9",
        "",
    )
    (row,) = found["findings"]
    assert (row["requirement"], row["verdict"]) == (RANGES_ARE_SANE, "not met")
    assert (row["expected"], row["came"]) == ("[1, 3, 18]", "[3, 1, 18]")
    assert any("ApiVersionsRequest" in line for line in row["transcript"])


def test_junit_xml_has_a_suite_per_section_and_a_case_per_requirement(tmp_path: Path) -> None:
    file = tmp_path / "found.xml"
    with fake_node(advertising(UPSIDE_DOWN)) as address:
        conformance(
            "--bootstrap",
            address,
            "--only",
            RANGES_ARE_SANE,
            "--only",
            "wire/4.15",
            "--only",
            "wire/9.3",
            "--junit",
            str(file),
        )
    root = ElementTree.fromstring(file.read_bytes())
    assert [
        (suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("skipped"))
        for suite in root
    ] == [
        ("wire/4 Version negotiation", "2", "1", "1"),
        ("wire/9 Connections", "1", "1", "0"),
    ]
    assert root.attrib.items() >= {"tests": "3", "failures": "2", "errors": "0"}.items()
    failure = root.find("./testsuite/testcase/failure")
    assert (
        failure is not None and "expected [1, 3, 18], got [3, 1, 18]" in failure.attrib["message"]
    )
    assert "ApiVersionsRequest" in (failure.text or "") and "source: KIP-35" in (failure.text or "")
    assert {row.get("name") for row in root.findall("./testsuite/properties/property")} >= {
        "bootstrap",
        "release",
    }
    assert [case.get("classname") for case in root.iter("testcase")] == [
        "conformance.wire.4"
    ] * 2 + ["conformance.wire.9"]


JUNIT_10 = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp"},
        {"properties", "testcase"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": ({"name", "time", "classname"}, {"skipped", "failure", "error"}),
    "skipped": ({"message"}, set()),
    "failure": ({"message", "type"}, set()),
    "error": ({"message", "type"}, set()),
}
"""Element -> attributes and children, of those that junit-10.xsd of Jenkins' xUnit plug-in allows.

Each attribute is required.
"""


def test_junit_xml_conforms_to_the_common_schema(tmp_path: Path) -> None:
    file, lost = tmp_path / "found.xml", tmp_path / "lost.xml"
    with fake_node(advertising(UPSIDE_DOWN)) as address:
        conformance(
            "--bootstrap",
            address,
            "--only",
            "wire/4",
            "--only",
            "controller/1",
            "--junit",
            str(file),
        )
    conformance("--bootstrap", address, "--only", "wire/4", "--junit", str(lost))
    seen = set()
    for element in (
        element
        for document in (file, lost)
        for element in ElementTree.fromstring(document.read_bytes()).iter()
    ):
        attributes, children = JUNIT_10[element.tag]
        assert set(element.attrib) == attributes, element.tag
        assert {child.tag for child in element} <= children
        assert element.tag != "testcase" or len(element) <= 1
        seen.add(element.tag)
        if "time" in element.attrib:
            assert float(element.attrib["time"]) >= 0
        if "timestamp" in element.attrib:
            time.strptime(element.attrib["timestamp"], "%Y-%m-%dT%H:%M:%S")
    assert seen == set(JUNIT_10)


def test_the_list_names_every_requirement_with_its_number_and_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert conformance("--list", "--only", "wire/4") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "wire/4 Version negotiation" and lines[-1] == "15 requirements"
    assert lines[-3].endswith("[KAFKA-18659; KIP-896; since 4.0]")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "--bootstrap HOST:PORT"),
        (("--bootstrap", "nowhere"), "write an address as HOST:PORT"),
        (
            ("--bootstrap", "127.0.0.1:1", "--controller", "nowhere"),
            "write an address as HOST:PORT",
        ),
        (
            ("--bootstrap", "127.0.0.1:1", "--only", "no-such-thing"),
            "no requirement matches no-such-thing",
        ),
        (("--bootstrap", "127.0.0.1:1", "--release", "new"), "write a release line like 3.9"),
        (
            ("--bootstrap", "127.0.0.1:1", "--release", "9.9"),
            "--release 9.9: this is no known release line of Apache Kafka (2.3, ",
        ),
        (("--bootstrap", "127.0.0.1:1,nowhere"), "write an address as HOST:PORT"),
        (("--bootstrap", ","), "--bootstrap ,: write it as HOST:PORT,..."),
        (("--bootstrap", "127.0.0.1:1,"), "127.0.0.1:1, could not be checked: it does not answer"),
    ],
)
def test_invalid_arguments_exit_with_3(
    arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conformance(*arguments) == 3
    assert complaint in capsys.readouterr().err


def test_a_terminal_without_unicode_gets_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance_output, "_has_ticks", lambda: False)
    assert {
        click.unstyle(conformance_output.mark(verdict)) for verdict in runner.RequirementVerdict
    } == {
        "ok",
        "NO",
        "--",
    }
