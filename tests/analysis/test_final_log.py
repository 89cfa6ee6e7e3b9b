"""The final log is what a broker would recover from its disk: complete, intact batches in order, up
to the first that is not.
"""

import pytest

from kraftsim.partitions.events import FinalBatch, FinalLog, FinalRecord
from kraftsim.partitions.rules_final_log import final_log_events
from protocol.records.batches import build_batch
from protocol.records.record import Record


def batch(
    base_offset: int, keys: list[str], *, control: bool = False, base_sequence: int = -1
) -> bytes:
    records = [Record(timestamp=1, key=key.encode(), value=b"v") for key in keys]
    producer_id, producer_epoch = (-1, -1) if base_sequence < 0 else (7, 0)
    return build_batch(
        records,
        base_offset=base_offset,
        control=control,
        base_sequence=base_sequence,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def path(base_offset: int, log: str = "letters-0", node: str = "broker-1") -> str:
    return f"{node}/{log}/{base_offset:020}.log"


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


WHOLE = batch(0, ["a", "b"]) + batch(2, ["c"])


@pytest.mark.parametrize(
    "files, next_offset, keys",
    [
        pytest.param({path(0): b""}, 0, [], id="an empty log"),
        pytest.param({path(0): WHOLE}, 3, ["a", "b", "c"], id="whole"),
        pytest.param({path(0): WHOLE + batch(3, ["d"])[:-1]}, 3, ["a", "b", "c"], id="torn tail"),
        pytest.param(
            {path(0): WHOLE + flipped(batch(3, ["d"]))}, 3, ["a", "b", "c"], id="wrong checksum"
        ),
        pytest.param(
            {path(0): WHOLE + bytes(200)}, 3, ["a", "b", "c"], id="zeros after a power loss"
        ),
        pytest.param(
            {path(0): WHOLE + batch(1, ["d"])}, 3, ["a", "b", "c"], id="offsets that go back"
        ),
        pytest.param(
            {path(0): WHOLE, path(3): batch(3, ["d"])}, 4, ["a", "b", "c", "d"], id="two segments"
        ),
        pytest.param(
            {path(0): flipped(WHOLE), path(3): batch(3, ["d"])},
            2,
            ["a", "b"],
            id="nothing after a broken segment counts",
        ),
        pytest.param({path(5): batch(5, ["f"])}, 6, ["f"], id="a log whose start was deleted"),
        pytest.param(
            {path(0): batch(0, ["a"]) + batch(1, ["x"], control=True)},
            2,
            ["a"],
            id="control batches have no records of clients",
        ),
        pytest.param(
            {
                path(0): WHOLE,
                "broker-1/meta.properties": b"x",
                "broker-1/letters-0/leader-epoch-checkpoint": b"0",
            },
            3,
            ["a", "b", "c"],
            id="others",
        ),
    ],
)
def test_a_log_ends_after_its_last_intact_batch(
    files: dict[str, bytes], next_offset: int, keys: list[str]
) -> None:
    """Recovery truncates a log at its first invalid batch (LogSegment.recover)."""
    log, *rest = final_log_events(files)
    records = [event for event in rest if isinstance(event, FinalRecord)]
    first = min(
        int(name.rpartition("/")[2].removesuffix(".log")) for name in files if name.endswith(".log")
    )
    assert isinstance(log, FinalLog)
    assert (log.broker, log.topic, log.partition, log.log_start_offset, log.next_offset) == (
        "broker-1",
        "letters",
        0,
        first,
        next_offset,
    )
    assert log.record_count == len(records)
    assert [record.record_key for record in records] == keys
    assert log.batch_count == sum(isinstance(event, FinalBatch) for event in rest)


def test_logs_are_sorted_and_batches_have_producer_id_and_sequence() -> None:
    """Two runs over the same disks give the same lines, independent of the order of the files."""
    files = {
        path(0, "z-1", "broker-2"): batch(0, ["q"], base_sequence=5),
        path(0, "z-0"): batch(0, ["p"]),
        path(0, "with-dash-10"): batch(0, ["o"]),
    }
    events = list(final_log_events(files))
    assert events == list(final_log_events(dict(reversed(files.items()))))
    logs = [
        (event.broker, event.topic, event.partition)
        for event in events
        if isinstance(event, FinalLog)
    ]
    assert logs == [("broker-1", "with-dash", 10), ("broker-1", "z", 0), ("broker-2", "z", 1)]
    (stamped,) = [
        event for event in events if isinstance(event, FinalBatch) and event.broker == "broker-2"
    ]
    assert (
        stamped.producer_id,
        stamped.producer_epoch,
        stamped.base_sequence,
        stamped.last_sequence,
    ) == (7, 0, 5, 5)


def test_records_can_be_omitted_and_the_log_is_marked() -> None:
    """A log whose records are not listed must not look like an empty one to an invariant."""
    log, *rest = final_log_events({path(0): WHOLE}, with_records=False)
    assert isinstance(log, FinalLog)
    assert log.record_count == -1
    assert all(isinstance(event, FinalBatch) for event in rest)
