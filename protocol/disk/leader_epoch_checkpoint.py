"""leader-epoch-checkpoint: the start offset of each leader epoch of a partition.

A restarted replica asks for the end offset of its last epoch and truncates its log there.
Source: KIP-101, LeaderEpochCheckpointFile.
"""

from collections.abc import Sequence
from typing import NamedTuple

from protocol.disk.checkpoint_lines import build_checkpoint, parse_checkpoint
from protocol.disk.java_integers import parse_int32, parse_int64
from protocol.disk.malformed_file import MalformedFile

FILE = "leader-epoch-checkpoint"


class EpochStart(NamedTuple):
    """The start offset of an epoch: the first offset that its leader wrote, or would have
    written.
    """

    leader_epoch: int
    start_offset: int


def build_leader_epoch_checkpoint(starts: Sequence[EpochStart]) -> bytes:
    """Return the file, oldest epoch first."""
    return build_checkpoint([f"{start.leader_epoch} {start.start_offset}" for start in starts])


def parse_leader_epoch_checkpoint(data: bytes) -> list[EpochStart]:
    """Return the epochs in the order of the file. Raises MalformedFile."""
    try:
        return [
            EpochStart(parse_int32(leader_epoch), parse_int64(start_offset))
            for leader_epoch, start_offset in parse_checkpoint(FILE, data, 2)
        ]
    except ValueError as failure:
        if isinstance(failure, MalformedFile):
            raise
        raise MalformedFile(FILE, str(failure)) from failure
