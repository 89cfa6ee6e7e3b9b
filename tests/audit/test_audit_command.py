"""`kraftsim audit`: exit codes, text, JSON and page, and one line for everything that is no log
directory.
"""

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from kraftsim.cli.main import kraftsim, main
from tests.audit.log_files import FIRST_MS, RECORDS, SEGMENT, batches_of, write_log_dir

QUICK = ("--rule", "batch-checksums-fit")
"""One rule is enough where the rules do not matter."""
NOW = ("--now", str(FIRST_MS + 3_600_000))


@dataclass(frozen=True, slots=True)
class Done:
    """How the command ended."""

    exit_code: int
    output: str
    errors: str


def audit(*arguments: str | Path) -> Done:
    """Run the command in this process."""
    written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    errors = io.StringIO()
    command = ["kraftsim", "audit", *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", command),
        contextlib.redirect_stdout(written),
        contextlib.redirect_stderr(errors),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    assert isinstance(written.buffer, io.BytesIO) and isinstance(ended.value.code, int)
    return Done(ended.value.code, written.buffer.getvalue().decode(), errors.getvalue())


def damaged(directory: Path) -> Path:
    """Flip a bit in the value of the second batch's first record."""
    file = directory / "orders-0" / SEGMENT
    content = bytearray(file.read_bytes())
    content[content.index(b"value 1")] ^= 1
    file.write_bytes(content)
    return directory


def document_of(directory: Path) -> dict[str, Any]:
    """Return the JSON document of an audit with one rule."""
    done = audit(directory, *QUICK, *NOW, "--json", "-")
    document = json.loads(done.output)
    assert isinstance(document, dict)
    return document


def test_directories_of_cleanly_stopped_brokers_are_sound(tmp_path: Path) -> None:
    """All rules are asked; what they cannot decide is listed, and the exit code is 0."""
    directory = write_log_dir(tmp_path / "broker-1", batches_of(4))
    done = audit(directory)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("1 broker, 1 partition in 1 replica, 4 batches in ")
    assert ": sound, by " in done.output.splitlines()[0]


def test_a_defect_is_shown_with_its_place_and_time(tmp_path: Path) -> None:
    """Exit code 1; the text says what it means and what to do."""
    done = audit(damaged(write_log_dir(tmp_path / "broker-1", batches_of(4))), *QUICK, *NOW)
    assert done.exit_code == 1
    position = len(batches_of(1)[0])
    assert "LOSS  batch-checksums-fit: 1 of 4 examined" in done.output
    assert re.search(rf"at \S*broker-1/orders-0/{SEGMENT}, byte {position}, offset 3", done.output)
    assert "  means: " in done.output and "  to do: " in done.output


def test_a_broker_that_was_killed_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    """Without .kafka_cleanshutdown the newest data may be incomplete: exit code 2, with the
    directory's name; a defect is still a defect.
    """
    directory = write_log_dir(tmp_path / "broker-1", batches_of(4), is_clean=False)
    done = audit(directory, *QUICK)
    assert done.exit_code == 2
    assert f"not stopped cleanly, or ran while they were copied: {directory}" in done.output
    assert audit(damaged(directory), *QUICK).exit_code == 1


def test_the_json_document_has_what_the_text_has(tmp_path: Path) -> None:
    """The schema is in docs/after-an-incident.md: its fields do not change without a new format."""
    document = document_of(damaged(write_log_dir(tmp_path / "broker-1", batches_of(4))))
    assert (document["format"], document["outcome"]) == (1, "defect")
    assert document["audited_ms"] == FIRST_MS + 3_600_000
    (rule,) = document["rules"]
    (defect,) = rule["defects"]
    assert (rule["severity"], rule["defect_count"]) == ("loss", 1)
    assert defect["witnesses"][0]["offset"] == RECORDS
    assert defect["since_ms"] is defect["age_ms"] is None, "a checksum says no time"
    (replica,) = document["replicas"]
    assert (replica["end_offset"], replica["leader_epoch"]) == (4 * RECORDS, 0)
    assert replica["has_defect"] is True
    (timeline,) = document["partition_timelines"]
    assert [lane["producer_id"] for lane in timeline["lanes"]] == [1000]


def fields_of(value: object) -> set[str]:
    """Return the names of all fields in a JSON document."""
    if isinstance(value, dict):
        return set(value).union(*(fields_of(each) for each in value.values()))
    if isinstance(value, list):
        return set[str]().union(*(fields_of(each) for each in value))
    return set()


def test_all_fields_of_the_document_are_documented(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "after-an-incident.md"
    chapter = page.read_text().partition("## The JSON document")[2]
    documented = set(re.findall(r"`(\w+)`", chapter))
    document = document_of(damaged(write_log_dir(tmp_path / "broker-1", batches_of(2))))
    assert fields_of(document) - documented == set()


def test_out_keeps_tables_and_page_and_replaces_those_of_before(tmp_path: Path) -> None:
    directory = write_log_dir(tmp_path / "broker-1", batches_of(4))
    out = tmp_path / "out"
    for _ in range(2):
        assert audit(directory, *QUICK, "--out", out).exit_code == 0
    assert len(list((out / "tables" / "log_dirs").iterdir())) == 1
    assert "cluster a-cluster" in (out / "audit.html").read_text()


def test_out_is_never_inside_an_audited_directory(tmp_path: Path) -> None:
    """An audit writes nothing to the disks that it reads, and removes nothing of others."""
    directory = write_log_dir(tmp_path / "broker-1", batches_of(1))
    done = audit(directory, "--out", directory / "orders-0")
    assert done.exit_code == 3 and "which an audit does not write to" in done.errors
    mine = tmp_path / "mine" / "tables" / "list.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    done = audit(directory, *QUICK, "--out", tmp_path / "mine")
    assert done.exit_code == 3 and "list.txt is not of an audit" in done.errors
    assert mine.exists()


def _nothing(place: Path) -> Path:
    return place / "no-such-directory"


def _file(place: Path) -> Path:
    (place / "file").write_text("text")
    return place / "file"


def _empty(place: Path) -> Path:
    (place / "empty").mkdir()
    return place / "empty"


def _foreign(place: Path) -> Path:
    (place / "foreign" / "photos-7").mkdir(parents=True)
    (place / "foreign" / "photos-7" / "holiday.jpg").write_bytes(b"\xff\xd8")
    (place / "foreign" / "notes.log").write_text("no segment")
    return place / "foreign"


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (_nothing, "no such directory"),
        (_file, "is a file; name the log directory"),
        (_empty, "is empty"),
        (_foreign, "is no log directory of Kafka"),
    ],
)
def test_what_is_no_log_directory_is_refused_with_one_line(
    make: Callable[[Path], Path], complaint: str, tmp_path: Path
) -> None:
    place = make(tmp_path)
    done = audit(place)
    assert (done.exit_code, done.output) == (3, "")
    (line,) = done.errors.splitlines()
    assert line.startswith(f"Error: {place}: ") and complaint in line


def test_a_directory_that_cannot_be_listed_is_refused_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_log_dir(tmp_path / "broker-1", batches_of(1))

    def denied(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("kraftsim.audit.audit.os.listdir", denied)
    done = audit(directory)
    assert done.exit_code == 3
    assert done.errors == f"Error: {directory}: Permission denied\n"


def test_a_log_directory_is_named_once(tmp_path: Path) -> None:
    """Twice it would be compared with itself."""
    directory = write_log_dir(tmp_path / "broker-1", batches_of(1))
    (tmp_path / "again").symlink_to(directory)
    done = audit(directory, tmp_path / "again")
    assert done.exit_code == 3 and "again" in done.errors and len(done.errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--rule", "batch-checksum-fit"), "did you mean batch-checksums-fit; see `kraftsim list"),
        (("--skip", "spoons"), "no rule is called spoons"),
        (("--now", "yesterday"), "--now yesterday: write a time as"),
        (("--conf", "memory"), "--conf memory: expected KEY=VALUE"),
        (("--acknowledged", "no-such-file"), "'no-such-file' does not exist"),
    ],
)
def test_wrong_options_are_refused_with_the_reason(
    options: tuple[str, ...], complaint: str, tmp_path: Path
) -> None:
    done = audit(write_log_dir(tmp_path / "broker-1", batches_of(1)), *options)
    assert done.exit_code == 3 and complaint in done.errors
    assert "Traceback" not in done.errors


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"type": "acknowledged", "topic": "orders", "partition": 0}', "line 2: Object missing"),
        ('{"type": "acknowledged", "topic": "orders", "partition": 0, "offset": -1}', "line 2"),
        ('{"type": "sent"}', "line 2: Invalid value 'sent'"),
        (
            '{"type": "read", "topic": "orders", "partition": 0, "offset": 1, "isolated": 1}',
            "unknown field `isolated`",
        ),
        ("no JSON", "line 2"),
        ("\xff", "line 2"),
    ],
)
def test_a_malformed_line_of_a_client_is_named(line: str, complaint: str, tmp_path: Path) -> None:
    """A misspelt field would weaken the check in silence."""
    directory = write_log_dir(tmp_path / "broker-1", batches_of(1))
    file = tmp_path / "sent.jsonl"
    file.write_bytes(b"\n" + line.encode("latin-1"))
    done = audit(directory, *QUICK, "--acknowledged", file)
    assert done.exit_code == 3 and complaint in done.errors
    assert done.errors.startswith(f"Error: {file}, line 2: ")


def test_a_capture_without_frames_is_refused(tmp_path: Path) -> None:
    directory = write_log_dir(tmp_path / "broker-1", batches_of(1))
    file = tmp_path / "talk.pcap"
    file.write_bytes(b"no capture at all")
    done = audit(directory, *QUICK, "--capture", file)
    assert done.exit_code == 3 and done.errors.startswith(f"Error: {file}: ")


def test_rules_that_are_left_out_are_listed_with_the_reason(tmp_path: Path) -> None:
    directory = write_log_dir(tmp_path / "broker-1", batches_of(1))
    done = audit(directory, *QUICK, "--skip", "batch-checksums-fit")
    assert done.exit_code == 2, "nothing was asked"
    assert "1 not asked (left out with --skip)" in done.output


def test_an_application_that_lost_a_record_is_a_defect(tmp_path: Path) -> None:
    """The last record was acknowledged, and the log was restored from before it."""
    directory = write_log_dir(tmp_path / "broker-1", batches_of(2))
    lines = [
        {
            "type": "acknowledged",
            "topic": "orders",
            "partition": 0,
            "offset": offset,
            "producer_id": 1000,
            "producer_epoch": 0,
            "sequence": sequence,
            "time_ms": FIRST_MS,
        }
        for offset, sequence in ((0, 0), (5, 4))
    ]
    file = tmp_path / "sent.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = audit(directory, "--rule", "acknowledged-records-are-in-the-log", "--acknowledged", file)
    assert done.exit_code == 1, done.output
    assert "offset 5 was acknowledged" in done.output and "line 2" in done.output


def test_an_engine_that_fails_ends_the_command_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may run out of memory or disk."""
    monkeypatch.setattr("kraftsim.audit.report._COUNTS", "SELECT 1 FROM no_such_table")
    done = audit(write_log_dir(tmp_path / "broker-1", batches_of(1)), *QUICK)
    assert done.exit_code == 3
    (line,) = done.errors.splitlines()
    assert line.startswith("Error: the query of a rule failed: ") and "no_such_table" in line


def test_rules_are_listed_with_what_to_do(tmp_path: Path) -> None:
    """Shortly, or with source, meaning and remedy."""
    shown = CliRunner().invoke(kraftsim, ["list", "rules", "--long"]).output
    short = CliRunner().invoke(kraftsim, ["list", "rules"]).output
    names = [line.split()[0] for line in short.splitlines()]
    assert len(names) == len(set(names)) > 20 and "no-hanging-transactions" in names
    paragraphs = shown.split("\n\n")
    assert [paragraph.split()[0] for paragraph in paragraphs] == names
    assert all("\n  to do:  " in paragraph for paragraph in paragraphs)
