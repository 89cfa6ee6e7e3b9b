"""Lists the files of remote storage as Apache Kafka's LocalTieredStorage names them, and kraftsim's
stores: `TOPIC-PARTITION-TOPICID/BASEOFFSET-SEGMENTID.log`.

Names without the base offset are those of releases before 3.6, and of stores that copied them.
Source: RemoteTopicPartitionDirectory, RemoteLogSegmentFileset (of LocalTieredStorage).
"""

import re
from collections.abc import Iterator
from typing import Final

from kraftsim.analysis.places import Where
from kraftsim.audit.reading.disks import disk_of, named
from kraftsim.audit.reading.pieces import Row, TablePiece

_UUID: Final = r"[A-Za-z0-9_-]{22}"
_DIRECTORY: Final = re.compile(rf"(.+)-(\d{{1,9}})-({_UUID})")
_FILE: Final = re.compile(rf"(?:(\d{{20}})-)?({_UUID})(?:-|\.)(.+)")
KINDS: Final = {
    "log": "log",
    "index": "index",
    "offset_index": "index",
    "timeindex": "timeindex",
    "time_index": "timeindex",
    "txnindex": "txnindex",
    "snapshot": "snapshot",
    "leader_epoch_checkpoint": "leader-epochs",
    "leader_epoch": "leader-epochs",
}
NOTHING: Final[Row] = (None, None, None)


def remote_pieces(place: Where) -> Iterator[TablePiece]:
    """Yield a row for each file of a remote directory."""
    root = str(place)
    try:
        root = named(place)
        for found in disk_of(root).walk(root):
            directory, _, name = found.path.rpartition("/")
            if not name:
                continue
            owner = _DIRECTORY.fullmatch(directory.rpartition("/")[2])
            topic: Row = NOTHING if owner is None else (owner[1], int(owner[2]), owner[3])
            segment: Row = NOTHING if owner is None else _segment(name)
            yield TablePiece("remote_files", [(root, found.path, *topic, *segment, found.size)])
    except OSError as failure:
        yield TablePiece(
            "problems",
            [
                (
                    root,
                    *(None,) * 5,
                    None,
                    None,
                    "unreadable",
                    failure.strerror or str(failure),
                    False,
                )
            ],
        )


def _segment(name: str) -> Row:
    found = _FILE.fullmatch(name)
    if found is None:
        return NOTHING
    offset = None if found[1] is None else int(found[1])
    return found[2], offset, KINDS.get(found[3], found[3])
