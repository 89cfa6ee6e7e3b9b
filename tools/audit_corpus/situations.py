"""A situation: copies of all log directories of a cluster at one moment, and what an audit may say
of them.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from protocol.malformed import MalformedFile
from protocol.records.batches import RecordBatch
from protocol.records.record import MalformedBatch
from protocol.storage.file_names import (
    CLEAN_SHUTDOWN,
    RECOVERY_POINTS,
    REPLICATION_OFFSETS,
    parse_partition_directory_name,
    parse_segment_file_name,
)
from protocol.storage.text_files import parse_offset_checkpoint

FILE: Final = "situation.json"


class Stopped(StrEnum):
    """How the brokers ended before the copy."""

    CLEANLY = "cleanly"
    KILLED = "killed"
    MIXED = "mixed"
    RUNNING = "running"
    POWER_CUT = "power cut"


class Expected(StrEnum):
    """What an audit must say."""

    SOUND = "sound"
    """No defect; with `Stopped.CLEANLY` on all nodes exit code 0."""
    UNKNOWN = "unknown"
    """No defect; what cannot be decided is listed."""
    HANGING = "hanging"
    """The hanging transaction that was left open on purpose, and nothing else."""
    LOST = "lost"
    """Records that were committed are gone (an unclean election): findings about them are true."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `situation.json`; paths are relative to its directory."""

    name: str
    release: str
    mode: str
    about: str
    stopped: Stopped
    expected: Expected
    log_dirs: tuple[str, ...]
    remote_dirs: tuple[str, ...] = ()
    findings: tuple[Mapping[str, str], ...] = ()
    """Of `HANGING`: topic, partition, producer_id as text."""


class Recorder:
    """Copies situations below `directory`, one subdirectory each, in the order of their making."""

    def __init__(self, directory: Path, run: str, release: str, mode: str) -> None:
        self.directory = directory
        self.run = run
        self.release = release
        self.mode = mode
        self.made: list[Situation] = []

    def copy(
        self,
        name: str,
        about: str,
        log_dirs: Mapping[int, Sequence[Path]],
        *,
        stopped: Stopped,
        expected: Expected = Expected.SOUND,
        release: str = "",
        remote: Path | None = None,
        findings: Iterable[Mapping[str, str]] = (),
    ) -> Path:
        """Copy the log directories of some nodes; return the directory of the situation."""
        place = self.directory / f"{self.run}-{len(self.made) + 1:02d}-{name}"
        if place.exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        copied = []
        for number, sources in sorted(log_dirs.items()):
            for source in sources:
                relative = f"node-{number}/{source.name}"
                copy_tree(source, place / relative)
                copied.append(relative)
        remote_dirs: tuple[str, ...] = ()
        if remote is not None:
            copy_tree(remote, place / "remote")
            remote_dirs = ("remote",)
        situation = Situation(
            name=place.name,
            release=release or self.release,
            mode=self.mode,
            about=about,
            stopped=stopped,
            expected=expected,
            log_dirs=tuple(copied),
            remote_dirs=remote_dirs,
            findings=tuple(findings),
        )
        write_situation(place, situation)
        self.made.append(situation)
        print(f"  {place.name}", flush=True)
        return place

    def power_cut(self, source: Path, name: str, about: str, *, zeros: bool = False) -> Path:
        """Copy a situation of killed brokers once more, without part of what was not flushed."""
        origin = read_situation(source)
        log_dirs: dict[int, list[Path]] = {}
        for each in origin.log_dirs:
            number = int(each.partition("/")[0].removeprefix("node-"))
            log_dirs.setdefault(number, []).append(source / each)
        place = self.copy(
            name,
            about,
            log_dirs,
            stopped=Stopped.POWER_CUT,
            expected=Expected.UNKNOWN,
            remote=source / "remote" if origin.remote_dirs else None,
        )
        for each in origin.log_dirs:
            cut_power(place / each, zeros=zeros)
        return place


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory that may change meanwhile: files that vanish are left out, holes stay."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["cp", "-a", "--sparse=always", str(source), str(target)],
        check=False,
        stderr=subprocess.DEVNULL,
    )
    (target / ".lock").unlink(missing_ok=True)


def write_situation(place: Path, situation: Situation) -> None:
    """Write `situation.json`."""
    (place / FILE).write_bytes(
        msgspec.json.format(msgspec.json.encode(situation), indent=1) + b"\n"
    )


def read_situation(place: Path) -> Situation:
    """Return the contents of `situation.json`."""
    return msgspec.json.decode((place / FILE).read_bytes(), type=Situation)


def situations(corpus: Path) -> Iterator[tuple[Path, Situation]]:
    """Yield the directory and the description of every situation, by name."""
    for file in sorted(corpus.glob(f"*/{FILE}")):
        yield file.parent, read_situation(file.parent)


def cut_power(log_dir: Path, *, zeros: bool = False) -> None:
    """Take away half of what a file system may lose: the end of each newest segment above the
    recovery point, at a byte inside a batch; or leave zeros there.

    What was committed stays: only bytes above the checkpointed high watermark go, and the metadata
    log, which is flushed at each append, is left alone.
    """
    (log_dir / CLEAN_SHUTDOWN).unlink(missing_ok=True)
    recovered = _checkpoint(log_dir / RECOVERY_POINTS)
    committed = _checkpoint(log_dir / REPLICATION_OFFSETS)
    for directory in sorted(each for each in log_dir.iterdir() if each.is_dir()):
        partition = parse_partition_directory_name(directory.name)
        if partition is None or partition.topic in ("__cluster_metadata", "@metadata"):
            continue
        logs = sorted(directory.glob("*.log"))
        if not logs:
            continue
        key = (partition.topic, partition.partition)
        keep = max(recovered.get(key, 0), committed.get(key, 0))
        _cut(logs[-1], keep, zeros=zeros)


def _cut(log: Path, keep_below: int, *, zeros: bool) -> None:
    """Cut a segment between the batch that ends at or after `keep_below` and its end."""
    data = log.read_bytes()
    position, first_free = 0, 0
    try:
        while position < len(data):
            batch = RecordBatch(data, position)
            position += batch.size_bytes
            if batch.base_offset < keep_below:
                first_free = position
    except MalformedBatch:
        return
    end = first_free + (len(data) - first_free) // 2
    if end >= len(data):
        return
    with open(log, "r+b") as opened:
        opened.truncate(end)
        if zeros:
            opened.truncate(len(data))


def _checkpoint(file: Path) -> dict[tuple[str, int], int]:
    try:
        return parse_offset_checkpoint(file.read_bytes())
    except (OSError, MalformedFile):
        return {}


def size_of(place: Path) -> int:
    """Return the bytes of all files below a directory."""
    return sum(
        os.stat(Path(root) / name).st_size for root, _, names in os.walk(place) for name in names
    )


def segments(place: Path) -> list[Path]:
    """Return all `.log` files of a situation."""
    return sorted(
        file
        for file in place.rglob("*.log")
        if parse_segment_file_name(file.name) is not None
        and not file.parent.name.endswith("-delete")
    )


def as_json(situation: Situation) -> str:
    """Return one line of JSON."""
    return json.dumps(msgspec.to_builtins(situation))
