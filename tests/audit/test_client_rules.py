"""What clients recorded against the disks: lost, doubled, out of order, aborted; and what cannot be
decided is no defect.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from kraftsim.audit.checks import clients
from kraftsim.audit.judging import judge_with_duckdb
from kraftsim.audit.rule import AuditOutcome, AuditRule, RuleResult
from tests.audit.staged_tables import (
    NEWEST_MS,
    Cell,
    batch,
    log_dir,
    registered,
    replica,
    write_table,
)

PLAIN, COMMITTED, ABORTED, OPEN = 7, 8, 9, 10
"""Producer ids in the log below."""
END_OFFSET = 12
BEFORE_MS = NEWEST_MS - 60_000
Client = dict[str, Cell]


def log_of(node: int) -> list[dict[str, Cell]]:
    """The batches of both brokers: two transactions that ended, and one that did not."""
    place = f"broker-{node}"
    return [
        batch(0, 5, log_dir=place, producer_id=PLAIN, sequence=0),
        batch(5, 2, log_dir=place, producer_id=COMMITTED, sequence=0, transactional=True),
        batch(7, log_dir=place, producer_id=COMMITTED, control="COMMIT"),
        batch(8, 2, log_dir=place, producer_id=ABORTED, sequence=0, transactional=True),
        batch(10, log_dir=place, producer_id=ABORTED, control="ABORT"),
        batch(11, log_dir=place, producer_id=OPEN, sequence=0, transactional=True),
    ]


def acknowledged(offset: int, **more: Cell) -> Client:
    """A row of client_acknowledged."""
    return {
        "source": "sent.jsonl",
        "line": offset + 1,
        "time_ms": BEFORE_MS,
        "topic": "orders",
        "partition": 0,
        "acknowledged_offset": offset,
        "records": 1,
        "acks": -1,
        **more,
    }


def read(offset: int, **more: Cell) -> Client:
    """A row of client_reads."""
    return {
        "source": "read.jsonl",
        "line": offset + 1,
        "time_ms": BEFORE_MS,
        "topic": "orders",
        "partition": 0,
        "read_offset": offset,
        "records": 1,
        "isolation": "read_committed",
        **more,
    }


def commit(offset: int, **more: Cell) -> Client:
    """A row of client_commits."""
    return {
        "source": "read.jsonl",
        "line": offset + 1,
        "time_ms": BEFORE_MS,
        "group_id": "readers",
        "group_hash": 17,
        "topic": "orders",
        "partition": 0,
        "committed_offset": offset,
        **more,
    }


def found(
    root: Path,
    rule: AuditRule,
    table: str,
    rows: Sequence[Client],
    *,
    replicas: Sequence[int] = (1, 2),
    is_clean: bool = True,
    log_start_offset: int | None = None,
) -> RuleResult:
    """Ask a rule about two brokers that have the log above."""
    write_table(root, "log_dirs", [log_dir(node, is_clean=is_clean) for node in (1, 2)])
    write_table(
        root,
        "replicas",
        [replica(node, END_OFFSET, log_start_offset=log_start_offset) for node in (1, 2)],
    )
    for node in (1, 2):
        write_table(root, "batches", log_of(node))
    if replicas:
        topic, partition = registered("orders", replicas)
        write_table(root, "metadata_topics", [topic])
        write_table(root, "metadata_partitions", [partition])
    write_table(root, table, rows)
    (result,) = judge_with_duckdb(root, [rule])
    return result


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (acknowledged(0, producer_id=PLAIN, producer_epoch=0, sequence=0), ""),
        (acknowledged(4, producer_id=PLAIN, producer_epoch=0, sequence=4), ""),
        (acknowledged(4), ""),
        (acknowledged(8, outcome="aborted"), ""),
        (acknowledged(6, producer_id=COMMITTED, sequence=1, outcome="committed"), ""),
        (acknowledged(4, producer_id=PLAIN, sequence=3), "another batch lies there"),
        (acknowledged(4, producer_id=99, sequence=4), "another batch lies there"),
        (acknowledged(7), "another batch lies there"),
        (acknowledged(12), "all logs end before it"),
    ],
)
def test_an_acknowledged_record_must_be_in_the_log(
    row: Client, expected: str, tmp_path: Path
) -> None:
    """At its offset, from its producer; a marker is no record."""
    result = found(tmp_path, clients.ACKNOWLEDGED_AND_LOST, "client_acknowledged", [row])
    assert result.undecided_count == 0
    if expected:
        (finding,) = result.findings
        assert result.outcome is AuditOutcome.DEFECT and expected in finding.message
        assert "sent.jsonl line" in finding.message and finding.since_ms == BEFORE_MS
    else:
        assert result.outcome in (AuditOutcome.SOUND, AuditOutcome.NOT_APPLICABLE)


@pytest.mark.parametrize(
    ("row", "more", "reason"),
    [
        (acknowledged(12, acks=1), {}, "acks=1"),
        (acknowledged(12, time_ms=NEWEST_MS + 1), {}, "last written before"),
        (acknowledged(12, time_ms=None), {}, "no time"),
        (acknowledged(12), {"replicas": (1, 2, 3)}, "other replicas"),
        (acknowledged(12), {"replicas": ()}, "no metadata log"),
        (acknowledged(12), {"is_clean": False}, "not stopped cleanly"),
        (acknowledged(4, producer_id=99), {"log_start_offset": 5}, "below the start of a log"),
        (acknowledged(4, topic="payments"), {}, "no replica of the partition"),
    ],
)
def test_what_may_be_missing_rightly_is_undecided(
    row: Client, more: dict[str, object], reason: str, tmp_path: Path
) -> None:
    result = found(tmp_path, clients.ACKNOWLEDGED_AND_LOST, "client_acknowledged", [row], **more)  # type: ignore[arg-type]  # parameters of cases
    assert (result.defect_count, result.outcome) == (0, AuditOutcome.UNKNOWN)
    assert reason in result.findings[0].message


def test_a_gap_is_a_loss_unless_the_topic_is_compacted(tmp_path: Path) -> None:
    """A replica that compaction never touched has all offsets."""
    for name, cleaned, outcome in (
        ("plain", None, AuditOutcome.DEFECT),
        ("compacted", 9, AuditOutcome.UNKNOWN),
    ):
        root = tmp_path / name
        write_table(root, "log_dirs", [log_dir(1)])
        write_table(root, "replicas", [replica(1, 20, cleaned_until=cleaned)])
        write_table(root, "batches", [batch(0, 5), batch(15, 5)])
        topic, partition = registered("orders", [1])
        write_table(root, "metadata_topics", [topic])
        write_table(root, "metadata_partitions", [partition])
        write_table(root, "client_acknowledged", [acknowledged(8)])
        (result,) = judge_with_duckdb(root, [clients.ACKNOWLEDGED_AND_LOST])
        assert result.outcome is outcome, name


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        (
            acknowledged(5, producer_id=COMMITTED, sequence=0, outcome="committed"),
            AuditOutcome.SOUND,
        ),
        (
            acknowledged(5, producer_id=COMMITTED, sequence=0, outcome="aborted"),
            AuditOutcome.DEFECT,
        ),
        (
            acknowledged(9, producer_id=ABORTED, sequence=1, outcome="committed"),
            AuditOutcome.DEFECT,
        ),
        (acknowledged(9, producer_id=ABORTED, sequence=1, outcome="aborted"), AuditOutcome.SOUND),
        (acknowledged(11, producer_id=OPEN, sequence=0, outcome="committed"), AuditOutcome.UNKNOWN),
    ],
)
def test_the_outcome_of_a_transaction_must_match_its_marker(
    row: Client, outcome: AuditOutcome, tmp_path: Path
) -> None:
    """The marker of the batch's producer behind the batch."""
    result = found(tmp_path, clients.OUTCOME, "client_acknowledged", [row])
    assert result.outcome is outcome
    if outcome is AuditOutcome.DEFECT:
        batch_place, marker = result.findings[0].witnesses
        assert (batch_place.position, marker.offset) in ((500, 7), (800, 10))


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        (read(3), AuditOutcome.SOUND),
        (read(6), AuditOutcome.SOUND),
        (read(8), AuditOutcome.DEFECT),
        (read(8, isolation="read_uncommitted"), AuditOutcome.NOT_APPLICABLE),
        (read(11), AuditOutcome.UNKNOWN),
    ],
)
def test_read_committed_must_not_return_aborted_records(
    row: Client, outcome: AuditOutcome, tmp_path: Path
) -> None:
    """KIP-98."""
    result = found(tmp_path, clients.READ_ABORTED, "client_reads", [row])
    assert result.outcome is outcome


def test_a_record_that_was_read_must_be_in_the_log(tmp_path: Path) -> None:
    """Consumers read below the high watermark only."""
    result = found(tmp_path, clients.READ_AND_LOST, "client_reads", [read(2), read(12)])
    assert [each.subject for each in result.findings] == ["orders-0"]
    assert "offset 12 was read" in result.findings[0].message


def test_a_sequence_must_have_one_offset(tmp_path: Path) -> None:
    """Acknowledged twice, or acknowledged once and stored twice."""
    of_client = {"producer_id": PLAIN, "producer_epoch": 0, "sequence": 0}
    sound = [acknowledged(0, **of_client), acknowledged(0, **{**of_client, "line": 99})]
    result = found(tmp_path / "once", clients.DOUBLED, "client_acknowledged", sound)
    assert result.outcome is AuditOutcome.SOUND
    twice = [acknowledged(0, **of_client), acknowledged(12, **of_client)]
    result = found(tmp_path / "twice", clients.DOUBLED, "client_acknowledged", twice)
    assert "was acknowledged with offsets 0 and 12" in " ".join(
        each.message for each in result.findings
    )
    elsewhere = [acknowledged(12, **of_client)]
    result = found(tmp_path / "elsewhere", clients.DOUBLED, "client_acknowledged", elsewhere)
    assert {each.witnesses[0].log_dir for each in result.findings} == {"broker-1", "broker-2"}


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        (
            [
                acknowledged(0, producer_id=PLAIN, producer_epoch=0, sequence=0),
                acknowledged(3, producer_id=PLAIN, producer_epoch=0, sequence=3),
            ],
            AuditOutcome.SOUND,
        ),
        (
            [
                acknowledged(0, producer_id=PLAIN, producer_epoch=0, sequence=3),
                acknowledged(3, producer_id=PLAIN, producer_epoch=0, sequence=0),
            ],
            AuditOutcome.DEFECT,
        ),
        (
            [
                acknowledged(0, producer_id=PLAIN, producer_epoch=0, sequence=2_147_483_647),
                acknowledged(3, producer_id=PLAIN, producer_epoch=0, sequence=0),
            ],
            AuditOutcome.SOUND,
        ),
        ([acknowledged(1, sender="a", number=1), acknowledged(2, sender="a", number=5)], "sound"),
        ([acknowledged(2, sender="a", number=1), acknowledged(1, sender="a", number=5)], "defect"),
        ([acknowledged(2, sender="a", number=1), acknowledged(1, sender="b", number=5)], "sound"),
    ],
)
def test_offsets_must_follow_the_order_of_sending(
    rows: list[Client], outcome: str, tmp_path: Path
) -> None:
    """By sequence within a producer epoch, where a sequence wraps after 2^31 - 1; or by sender."""
    result = found(tmp_path, clients.ORDER, "client_acknowledged", rows)
    assert result.outcome == outcome


def test_values_are_compared_by_their_md5(tmp_path: Path) -> None:
    """A value that is sent once is stored once, apart from aborted transactions."""
    place: dict[str, Cell] = {"log_dir": "broker-1", "topic": "orders", "partition": 0}
    file = "orders-0/00000000000000000000.log"

    def record(offset: int, value: bytes | None, position: int) -> dict[str, Cell]:
        return {
            **place,
            "file": file,
            "position": position,
            "record_offset": offset,
            "value": value,
            "is_control": False,
        }

    def md5(value: bytes) -> str:
        return hashlib.md5(value).hexdigest()

    write_table(
        tmp_path,
        "records",
        [
            record(0, b"a", 0),
            record(1, b"b", 0),
            record(2, b"d", 0),
            record(3, b"d", 0),
            record(4, None, 0),
            record(8, b"c", 800),
            record(11, b"c", 1100),
        ],
    )
    rows = [
        acknowledged(0, value_md5=md5(b"a"), is_unique=True),
        acknowledged(1, value_md5=md5(b"x")),
        acknowledged(11, value_md5=md5(b"c"), is_unique=True),
        acknowledged(2, value_md5=md5(b"d"), is_unique=True),
        acknowledged(4, value_md5=md5(b"e")),
    ]
    values = found(tmp_path, clients.VALUES, "client_acknowledged", rows)
    assert [each.witnesses[0].offset for each in values.findings] == [1, 4]
    (unique,) = judge_with_duckdb(tmp_path, [clients.UNIQUE])
    assert [(each.subject, md5(b"d") in each.message) for each in unique.findings] == [
        ("orders-0", True)
    ]


@pytest.mark.parametrize(
    ("row", "cleaned_until", "outcome"),
    [
        (commit(5), None, AuditOutcome.SOUND),
        (commit(6), None, AuditOutcome.DEFECT),
        (commit(6), 3, AuditOutcome.UNKNOWN),
        (commit(6, time_ms=BEFORE_MS - 10_000), 3, AuditOutcome.SOUND),
        (commit(6, time_ms=NEWEST_MS + 1), None, AuditOutcome.UNKNOWN),
        (commit(6, transactional_id="t", outcome="aborted"), None, AuditOutcome.NOT_APPLICABLE),
    ],
)
def test_an_acknowledged_group_offset_must_be_stored(
    row: Client, cleaned_until: int | None, outcome: AuditOutcome, tmp_path: Path
) -> None:
    """Compaction keeps the latest commit of a group and partition only."""
    topic, partition = registered("__consumer_offsets", [1])
    write_table(tmp_path, "log_dirs", [log_dir(1)])
    write_table(
        tmp_path,
        "replicas",
        [replica(1, 9, topic="__consumer_offsets", cleaned_until=cleaned_until)],
    )
    write_table(tmp_path, "metadata_topics", [topic])
    write_table(tmp_path, "metadata_partitions", [partition])
    write_table(
        tmp_path,
        "group_offsets",
        [
            {
                "group_id": "readers",
                "of_topic": "orders",
                "of_partition": 0,
                "committed_offset": 5,
                "timestamp_ms": BEFORE_MS - 5_000,
            }
        ],
    )
    write_table(tmp_path, "client_commits", [row])
    (result,) = judge_with_duckdb(tmp_path, [clients.COMMITTED_OFFSETS])
    assert result.outcome is outcome
