"""Damaged, foreign and unreadable files: rows of `problems`, never an exception.

Source: LogSegment.recover, FileLogInputStream; OffsetIndex, TimeIndex, TransactionIndex
(sanityCheck); the issue of the audit.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftsim.audit.reading.pieces import Value
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.storage.file_names import segment_file_name
from protocol.storage.indexes import OffsetEntry, build_offset_index
from tests.audit.written_disks import (
    LOG_0,
    orders_batches,
    positions_of,
    row_counts,
    rows,
    write_log_dir,
)

LOG = f"orders-0/{LOG_0}"
COVERED_POSITION = 21
Damage = Callable[[bytes], bytes]


@pytest.fixture(name="sound", scope="module")
def _sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log_dir(tmp_path_factory.mktemp("sound") / "node")


@pytest.fixture(name="disk")
def _disk(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "node"))


def problems(disk: Path) -> list[dict[str, Value]]:
    """Return what is wrong, without the place."""
    return [
        {
            name: value
            for name, value in row.items()
            if name in ("file", "position", "size", "problem", "is_tail")
        }
        for row in rows(disk, "problems")
    ]


def damage(disk: Path, file: str, change: Damage) -> None:
    """Change a file."""
    place = disk / file
    place.write_bytes(change(place.read_bytes()))


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(choice=st.data())
def test_any_damage_gives_at_most_problems(sound: Path, choice: st.DataObject) -> None:
    """A bit flipped, a file cut off, zeros to the end, or random bytes somewhere in it."""
    files = sorted(file for file in sound.rglob("*") if file.is_file() and file.stat().st_size)
    file = choice.draw(st.sampled_from(files))
    content = file.read_bytes()
    at = choice.draw(st.integers(0, len(content) - 1))
    kind = choice.draw(st.sampled_from(("flip", "cut", "zero", "random")))
    changed = bytearray(content)
    match kind:
        case "flip":
            changed[at] ^= 1 << choice.draw(st.integers(0, 7))
        case "cut":
            del changed[at:]
        case "zero":
            changed[at:] = bytes(len(content) - at)
        case _:
            bytes_there = choice.draw(st.binary(min_size=1, max_size=40))
            changed[at : at + len(bytes_there)] = bytes_there
    try:
        file.write_bytes(changed)
        counts = row_counts(sound)
    finally:
        file.write_bytes(content)
    if kind == "flip" and file.suffix == ".log" and "old" not in file.parent.name:
        starts = positions_of(orders_batches()) if file.parent.name == "orders-0" else [0]
        if any(start + COVERED_POSITION - 5 <= at < start + 61 for start in starts):
            assert counts["problems"], "the checksum covers what was changed, or is it"


def test_torn_batch_at_the_end_is_a_tail(disk: Path) -> None:
    """Recovery after an unclean shutdown truncates it."""
    damage(disk, LOG, lambda content: content[:-3])
    position = positions_of(orders_batches())[-1]
    size = len(orders_batches()[-1]) - 3
    assert problems(disk) == [
        {"file": LOG, "position": position, "size": size, "problem": "torn", "is_tail": True}
    ]
    (replica,) = [row for row in rows(disk, "replicas") if row["topic"] == "orders"]
    assert replica["end_offset"] == 6


def test_torn_batch_in_an_older_segment_is_no_tail(disk: Path) -> None:
    """What comes after it in the log can be read."""
    damage(disk, LOG, lambda content: content[:-3])
    newer = build_batch([Record(value=b"x")], base_offset=7)
    (disk / "orders-0" / segment_file_name(7)).write_bytes(newer)
    (found,) = problems(disk)
    assert (found["problem"], found["is_tail"]) == ("torn", False)


def test_zeros_at_the_end_are_a_tail(disk: Path) -> None:
    """A file system leaves them after a power loss, and Kafka in a preallocated segment."""
    end = (disk / LOG).stat().st_size
    damage(disk, LOG, lambda content: content + bytes(20_000_000))
    (found,) = rows(disk, "problems")
    assert (found["problem"], found["position"], found["size"]) == ("torn", end, 20_000_000)
    assert found["is_tail"] and found["reason"] == "20000000 bytes are zero"


def test_wrong_checksum_is_found_and_its_batch_is_a_row(disk: Path) -> None:
    """The next batch follows where the length says."""
    position = positions_of(orders_batches())[2]
    damage(disk, LOG, lambda content: _flipped(content, position + 70))
    (found,) = problems(disk)
    assert (found["problem"], found["position"]) == ("crc", position)
    batches = [row for row in rows(disk, "batches") if row["topic"] == "orders"]
    assert [row["crc_valid"] for row in batches] == [True, True, False, True]


def test_batch_after_a_wrong_length_is_found_by_the_index(disk: Path) -> None:
    """Without the index the rest of the segment is lost."""
    positions = positions_of(orders_batches())
    damage(disk, LOG, lambda content: _flipped(content, 9))
    (found,) = problems(disk)
    assert (found["problem"], found["position"], found["size"]) == ("malformed", 0, positions[1])
    assert not found["is_tail"]
    (disk / "orders-0" / "00000000000000000000.index").unlink()
    (lost,) = problems(disk)
    assert (lost["problem"], lost["position"], lost["is_tail"]) == ("torn", 0, True)


def test_unknown_message_format_is_unsupported(disk: Path) -> None:
    """A newer release may have one."""
    damage(disk, LOG, lambda content: content[:16] + b"\x07" + content[17:])
    found = rows(disk, "problems")
    assert [(row["problem"], row["reason"]) for row in found] == [
        ("unsupported", "message format 7")
    ]


def test_index_that_names_no_batch_contradicts_its_segment(disk: Path) -> None:
    """A lookup would begin in the middle of a batch."""
    index = "orders-0/00000000000000000000.index"
    position = positions_of(orders_batches())[1] + 1
    (disk / index).write_bytes(build_offset_index(0, [OffsetEntry(3, position)]))
    assert problems(disk) == [
        {"file": index, "position": 0, "size": 8, "problem": "index", "is_tail": False}
    ]


def test_entry_of_a_follower_names_an_earlier_batch(disk: Path) -> None:
    """A follower appends several batches with one entry: the offset of the last, the place of the
    first.
    """
    index = "orders-0/00000000000000000000.index"
    (disk / index).write_bytes(
        build_offset_index(0, [OffsetEntry(6, positions_of(orders_batches())[1])])
    )
    assert not problems(disk)


def test_preallocated_indexes_are_sound(disk: Path) -> None:
    """A broker that was killed leaves them with zeros to log.index.size.max.bytes."""
    for suffix in ("index", "timeindex"):
        damage(disk, f"orders-0/00000000000000000000.{suffix}", lambda found: found + bytes(24_000))
    assert not problems(disk)
    entries = [row for row in rows(disk, "offset_index") if row["topic"] == "orders"]
    assert len(entries) == 2


@pytest.mark.parametrize(
    "suffix, change, problem",
    [
        ("index", lambda found: found[:-1], "index"),
        ("index", lambda found: found[8:] + found[:8], "index"),
        ("timeindex", lambda found: found[:-1], "index"),
        ("timeindex", lambda found: found[12:] + found[:12], "index"),
        ("timeindex", lambda found: found[:-1] + b"\x7f", "index"),
        ("txnindex", lambda found: found + found, "index"),
        ("txnindex", lambda found: b"\x00\x01" + found[2:], "unsupported"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_indexes_are_held_to_the_rules_of_kafka(
    disk: Path, suffix: str, change: Damage, problem: str
) -> None:
    """An odd size, a falling order, an offset after the end, a marker twice, a version."""
    damage(disk, f"orders-0/00000000000000000000.{suffix}", change)
    assert {row["problem"] for row in problems(disk)} == {problem}


@pytest.mark.parametrize(
    "file, content, problem",
    [
        ("meta.properties", b"version=9\n", "malformed"),
        ("replication-offset-checkpoint", b"0\n2\norders 0 7\n", "malformed"),
        ("orders-0/leader-epoch-checkpoint", b"0\n1\nx y\n", "malformed"),
        ("orders-0/partition.metadata", b"version: 0\ntopic_id: none", "malformed"),
        ("orders-0/00000000000000000007.snapshot", b"\x00\x01abcdefgh", "crc"),
        ("__cluster_metadata-0/quorum-state", b"{", "malformed"),
        ("__cluster_metadata-0/00000000000000000005-0000000001.checkpoint", b"", "torn"),
    ],
)
def test_malformed_small_files_are_problems(
    disk: Path, file: str, content: bytes, problem: str
) -> None:
    """Each is named, and the others are read."""
    (disk / file).write_bytes(content)
    assert [(row["file"], row["problem"]) for row in problems(disk)] == [(file, problem)]


def test_what_cannot_be_opened_is_named(disk: Path, tmp_path: Path) -> None:
    """A pipe would wait for ever; a link may lead nowhere or back; a directory may be foreign."""
    os.mkfifo(disk / "orders-0" / segment_file_name(50))
    (disk / "orders-0" / segment_file_name(60)).symlink_to(tmp_path / "nowhere")
    (disk / "loop").symlink_to(disk)
    (disk / "backup").mkdir()
    (disk / "backup" / "notes.txt").write_text("?")
    found = {(row["file"], row["problem"]) for row in problems(disk)}
    assert found == {
        (f"orders-0/{segment_file_name(50)}", "unreadable"),
        (f"orders-0/{segment_file_name(60)}", "unreadable"),
        ("backup/", "name"),
    }


def test_directory_without_a_log_directory_is_a_problem(tmp_path: Path) -> None:
    """Also one that is not there, and an address of an unknown kind."""
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "missing", "nothing://there"):
        assert [row["problem"] for row in rows(place, "problems")] == ["unreadable"]


def test_names_that_are_no_utf8_are_shown_escaped(disk: Path) -> None:
    """A file system takes any bytes."""
    name = os.fsencode(disk / "orders-0") + b"/\xff.txt"
    with open(name, "wb") as file:
        file.write(b"?")
    assert any("\\xff" in str(row["file"]) for row in rows(disk, "files"))


def _flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0x40]) + content[position + 1 :]
