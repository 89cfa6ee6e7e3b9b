"""Apache Kafka's DumpLogSegments reads the files of a broker and a controller without errors."""

import re
from pathlib import Path

import pytest

from kraftsim.partitions.rules_log import SegmentSettings
from tests.apache_kafka.class_path import class_path
from tests.apache_kafka.harness import dump_log
from tests.node.conftest import MakeWorld, data_batch
from tests.node.test_log import append, opened

pytestmark = pytest.mark.interop


def test_kafka_reads_our_segments_and_indexes(make_world: MakeWorld, tmp_path: Path) -> None:
    """Every batch with its offsets and a valid checksum; both indexes agree with the log."""
    class_path()
    log, _, _ = opened(
        make_world(), SegmentSettings(segment_bytes=20_000, index_interval_bytes=500)
    )
    for _ in range(300):
        first = log.log_end_offset
        append(
            log,
            data_batch(
                2,
                timestamp=1_700_000_000_000 + first,
                first=first,
                producer_id=7,
                producer_epoch=0,
                base_sequence=first,
            ),
        )
    log.close()
    directory = tmp_path / "data" / "t-0"
    segments = sorted(directory.glob("*.log"))
    indexes = [*sorted(directory.glob("*.index")), *sorted(directory.glob("*.timeindex"))]
    assert len(segments) >= 2 and len(indexes) == 2 * len(segments)
    dumped = dump_log(*segments, *indexes)
    assert [int(offset) for offset in re.findall(r"baseOffset: (\d+)", dumped)] == list(
        range(0, 600, 2)
    )
    assert dumped.count("isvalid: true") == 300
    assert not re.search(
        r"[Mm]ismatch|not found|[Cc]orrupt|out of order|invalid", dumped.replace("isvalid", "")
    ), dumped[-2000:]
