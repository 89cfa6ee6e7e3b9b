"""The structure of Kafka's checkpoint files: a version line `0`, a line with the number of entries,
one line per entry.

The count reveals a truncated file.   Source: CheckpointFile.
"""

from collections.abc import Sequence

from protocol.disk.malformed_file import MalformedFile

VERSION_LINE = "0"


def build_checkpoint(entries: Sequence[str]) -> bytes:
    """Return a file with the entries."""
    return "".join(f"{line}\n" for line in (VERSION_LINE, str(len(entries)), *entries)).encode()


def parse_checkpoint(file: str, data: bytes, fields_per_entry: int) -> list[list[str]]:
    """Return the fields of every entry; an empty file has none. Raises MalformedFile."""
    lines = data.decode(errors="replace").splitlines()
    if not lines:
        return []
    if lines[0] != VERSION_LINE:
        raise MalformedFile(file, f"version {lines[0]!r}")
    entries = [line.split() for line in lines[2:]]
    if len(lines) < 2 or lines[1] != str(len(entries)):
        raise MalformedFile(file, f"{len(entries)} entries, {lines[1:2]} announced")
    for number, entry in enumerate(entries, start=3):
        if len(entry) != fields_per_entry:
            raise MalformedFile(
                file, f"line {number} has {len(entry)} words instead of {fields_per_entry}"
            )
    return entries
