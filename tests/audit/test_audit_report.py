"""The report of an audit: the sentence, the order of defects, the page with hostile names, and the
pictures.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from kraftsim.audit.checks.committed_offsets import OFFSETS_RETAINED
from kraftsim.audit.judging import duckdb_tables, judge
from kraftsim.audit.page import page_of
from kraftsim.audit.report import (
    AuditReport,
    RuleNotAsked,
    abort_commands,
    age_text,
    report_of,
    size_text,
    time_text,
)
from kraftsim.audit.rule import AuditOutcome, AuditRule, DefectSeverity, HangingTransaction
from kraftsim.audit.text import lines_of
from kraftsim.audit.timelines import sql_text
from tests.audit.staged_tables import NEWEST_MS, Cell, batch, log_dir, replica, write_table

HOSTILE = "</script><script>alert('x')</script>&{{RULES}}\x1b[2J\n"
DIRECTORY = "it's $a \\ disk"
NOW_MS = NEWEST_MS + 90_061_000


def rule_that_finds(
    name: str, severity: DefectSeverity, message: str, *, count: int = 1, is_defect: bool = True
) -> AuditRule:
    """A rule with as many findings as wanted, about the batch at offset 5 of broker-1."""
    text = sql_text(message)
    found = (
        f"SELECT 'orders-0' AS subject, {text} AS message, "
        f"CAST({NEWEST_MS} AS BIGINT) AS since_ms, 'broker-1' AS log_dir, "
        "'orders-0/00000000000000000000.log' AS file, "
        "CAST(500 AS BIGINT) AS position, CAST(5 AS BIGINT) AS at_offset, "
        "CAST(NULL AS VARCHAR) AS log_dir2, CAST(NULL AS VARCHAR) AS file2, "
        "CAST(NULL AS BIGINT) AS position2, CAST(NULL AS BIGINT) AS at_offset2 "
        f"FROM range({count})"
    )
    nothing = f"SELECT * FROM ({found}) AS none WHERE 1 = 0"
    return AuditRule(
        name=name,
        statement="A statement.",
        source="KIP-98",
        severity=severity,
        meaning="A meaning.",
        remedy="A remedy.",
        reads=("batches",),
        examined="SELECT 7",
        defects=found if is_defect else nothing,
        undecided=nothing if is_defect else found,
    )


def reported(root: Path, rules: Sequence[AuditRule], *, is_clean: bool = True) -> AuditReport:
    """Return the report of a broker with a transaction that is open, and a controller."""
    write_table(root, "log_dirs", [log_dir(1, is_clean=is_clean), log_dir(9, metadata=True)])
    write_table(
        root,
        "replicas",
        [replica(1, 8, high_watermark=7), replica(9, 3, topic="__cluster_metadata")],
    )
    write_table(
        root,
        "batches",
        [
            batch(0, 2, producer_id=1, sequence=0, transactional=True),
            batch(2, producer_id=1, control="ABORT"),
            batch(3, 2, producer_id=1, sequence=2, transactional=True),
            batch(5, 2, producer_id=2, sequence=0),
            batch(7, producer_id=3, sequence=0, transactional=True),
        ],
    )
    states: list[dict[str, Cell]] = [
        {
            "log_dir": "broker-1",
            "file": "__transaction_state-0/00000000000000000000.log",
            "position": number * 100,
            "record_offset": number,
            "transactional_id": HOSTILE,
            "is_tombstone": False,
            "producer_id": 2,
            "producer_epoch": 0,
            "status": status,
            "partitions": f'[["{HOSTILE.strip()}", 0]]',
            "last_update_ms": NEWEST_MS - 5000 + number * 1000,
        }
        for number, status in enumerate(("Empty", "Ongoing", "PrepareCommit", "CompleteCommit"))
    ]
    write_table(root, "transaction_states", states)
    with duckdb_tables(root) as connection:

        def ask(query: str) -> list[tuple[object, ...]]:
            return connection.execute(query).fetchall()

        results = judge(ask, rules)
        return report_of(
            ask,
            list(zip(rules, results, strict=True)),
            [RuleNotAsked(name="other", reason="a reason")],
            now_ms=NOW_MS,
            version="1",
        )


class Elements(HTMLParser):
    """Collects the names of elements, and checks that they are closed in order."""

    VOID = ("meta", "br", "link")

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember it."""
        self.names.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """It closes the last one."""
        assert self.open.pop() == tag


def test_a_notice_that_is_no_alarm_is_listed_and_the_audit_is_sound(tmp_path: Path) -> None:
    """A group that lags behind retention says nothing against the disks."""
    notice = replace(rule_that_finds("notice", DefectSeverity.NOTICE, "it lags"), is_alarm=False)
    report = reported(tmp_path, [notice])
    assert report.outcome is AuditOutcome.SOUND
    assert report.sentence.endswith(": sound, by 1 rule; 1 notice.")
    assert any("it lags" in line for line in lines_of(report))
    assert not OFFSETS_RETAINED.is_alarm


def test_defects_come_first_the_most_severe_before_the_others(tmp_path: Path) -> None:
    rules = [
        rule_that_finds("notice", DefectSeverity.NOTICE, "small"),
        rule_that_finds("undecided", DefectSeverity.LOSS, "perhaps", is_defect=False),
        rule_that_finds("loss", DefectSeverity.LOSS, "bad", count=120),
    ]
    report = reported(tmp_path, rules)
    assert [each.name for each in report.rules] == ["loss", "notice", "undecided"]
    assert report.outcome is AuditOutcome.DEFECT
    assert report.sentence.startswith("1 broker and 1 controller, 2 partitions in 2 replicas, ")
    assert report.sentence.endswith(
        ": 121 defects of 2 kinds; at worst, committed data is gone, or replicas differ; 1 thing "
        "cannot be decided."
    )
    lines = list(lines_of(report))
    assert lines.count("  - and 110 more") == 1
    assert f"    since {time_text(NEWEST_MS)}, 1 d 1 h ago" in lines
    assert page_of(report).count("and 20 more of this kind") == 1


@pytest.mark.parametrize(
    ("is_clean", "must_decide", "outcome"),
    [(True, False, "sound"), (True, True, "unknown"), (False, False, "unknown")],
)
def test_what_is_undecided_makes_the_outcome_unknown_only_if_it_must_be_decided(
    is_clean: bool, must_decide: bool, outcome: str, tmp_path: Path
) -> None:
    """Or if a broker was not stopped cleanly; a controller's directory never says it."""
    found = rule_that_finds("rule", DefectSeverity.WRONG, "perhaps", is_defect=False)
    rule = AuditRule(**{**_fields(found), "must_decide": must_decide})  # type: ignore[arg-type]  # fields of a dataclass
    report = reported(tmp_path, [rule], is_clean=is_clean)
    assert report.outcome == outcome
    assert bool(report.unknown_because) == (outcome == "unknown")
    assert report.rules[0].undecided_unclean == (0 if is_clean else 1)
    assert [each.role for each in report.directories] == ["broker", "controller"]
    assert [each.is_unclean for each in report.directories] == [not is_clean, False]


def _fields(rule: AuditRule) -> dict[str, object]:
    return {name: getattr(rule, name) for name in AuditRule.__dataclass_fields__}


def test_names_from_disks_are_text_on_the_page_and_on_the_terminal(tmp_path: Path) -> None:
    """A transactional id may be any string."""
    report = reported(tmp_path, [rule_that_finds("rule", DefectSeverity.LOSS, HOSTILE)])
    page = page_of(report)
    elements = Elements()
    elements.feed(page)
    assert elements.open == [] and elements.names.count("script") == 1
    assert "alert(" not in re.sub(r"&lt;script&gt;alert\(", "", page)
    assert "\x1b" not in page
    text = "\n".join(lines_of(report))
    assert "\x1b" not in text and "\\x1b[2J" in text
    assert not re.search(r"https?://|src=|@import|url\(", page), "it needs no network"


def test_the_page_draws_producers_and_transactional_ids_of_defects(tmp_path: Path) -> None:
    """The batch that a defect names belongs to producer 2, whose transactional id has four
    states.
    """
    report = reported(tmp_path, [rule_that_finds("rule", DefectSeverity.LOSS, "bad")])
    (timeline,) = report.partition_timelines
    assert timeline.is_named and [lane.producer_id for lane in timeline.lanes] == [2, 3, 1]
    assert [lane.open_since for lane in timeline.lanes] == [None, 7, 3]
    assert [each.kind for each in timeline.lanes[2].batches] == [
        "transactional",
        "ABORT",
        "transactional",
    ]
    (states,) = report.transactional_id_timelines
    assert (states.transactional_id, len(states.states)) == (HOSTILE, 4)
    page = page_of(report)
    assert page.count('class="open"') == 3, "two, and the key"
    assert page.count('class="ABORT"') == 3, "by offset, by time, and the key"
    assert "PrepareCommit since" in page and "transactional batch, offsets 3 to 4" in page
    assert '<tr class="broken">' in page


def test_the_document_is_the_report(tmp_path: Path) -> None:
    report = reported(tmp_path, [rule_that_finds("rule", DefectSeverity.LOSS, HOSTILE)])
    assert msgspec.json.decode(msgspec.json.encode(report), type=AuditReport) == report


def test_directories_of_any_name_are_queried(tmp_path: Path) -> None:
    """In Spark a backslash is an escape, and a dollar sign begins a variable."""
    with duckdb_tables(tmp_path) as connection:
        (row,) = connection.execute(f"SELECT {sql_text(DIRECTORY)}").fetchall()
    assert row == (DIRECTORY,)
    assert not {"\\", "$"} & set(sql_text(DIRECTORY))


def test_the_command_against_a_hanging_transaction_is_ready_for_a_shell() -> None:
    """KIP-664; the topic is a word of its own whatever it contains."""
    hanging = HangingTransaction(
        topic="a; rm -rf $HOME",
        partition=2,
        producer_id=7,
        producer_epoch=1,
        coordinator_epoch=-1,
        start_offset=42,
    )
    newer, older = abort_commands(hanging)
    assert newer == (
        "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic 'a; rm -rf $HOME' "
        "--partition 2 --start-offset 42"
    )
    assert older.endswith("--producer-id 7 --producer-epoch 1 --coordinator-epoch 0")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (size_text(1023), "1,023 bytes"),
        (size_text(10 * 2**30), "10.0 GiB"),
        (age_text(59_999), "59 s"),
        (age_text(86_400_000), "1 d 0 h"),
        (age_text(-61_000), "1 min 1 s after the time of the audit"),
        (time_text(0), "1970-01-01 00:00:00.000 UTC"),
        (time_text(2**62), f"{2**62} ms"),
    ],
)
def test_numbers_are_written_for_readers(shown: str, expected: str) -> None:
    assert shown == expected
