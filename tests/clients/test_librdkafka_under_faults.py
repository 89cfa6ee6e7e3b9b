"""librdkafka through the proxy: lost, late and truncated responses, duplicate requests, torn reads
and resets; every record is in the log once.
"""

from pathlib import Path

import pytest

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.faults.fault import AtTime, Fault, OnFrame
from protocol.api_keys import ApiKey
from tests.cluster.running import logged_events

PRODUCE = int(ApiKey.PRODUCE)
BROKERS = ("broker-1", "broker-2", "broker-3")
FAULTS = (
    Fault(
        kind="lost-reply", target="broker-1", trigger=AtTime(at_ms=500), params={"api_key": PRODUCE}
    ),
    Fault(
        kind="partition",
        target="clients<>broker-2",
        trigger=AtTime(at_ms=1000),
        params={"duration_ms": 1500},
    ),
    Fault(kind="duplicate-request", trigger=OnFrame(api_key=PRODUCE, nth=40)),
    Fault(
        kind="torn-reads",
        target="clients<>broker-*",
        trigger=AtTime(at_ms=3000),
        params={"piece_bytes": 0, "duration_ms": 1500},
    ),
    Fault(
        kind="reset-storm",
        target="clients>broker-*",
        trigger=AtTime(at_ms=4500),
        params={"interval_ms": 50, "duration_ms": 1000},
    ),
    *(
        Fault(
            kind="cut-connection",
            trigger=OnFrame(api_key=PRODUCE, is_response=True, nth=nth),
            params={"after_bytes": after_bytes},
        )
        for nth, after_bytes in ((10, 0), (60, 5), (100, 20))
    ),
)


@pytest.mark.interop
def test_librdkafka_records_are_appended_once_under_network_faults(tmp_path: Path) -> None:
    """The invariants check the events; retries of appended batches were recognised as duplicates
    (KIP-98).
    """
    request = RunRequest(
        scenario=scenario("producer_ids_survive_failover"),
        mode=Mode.PROCESSES,
        seed=1,
        faults=FAULTS,
    )
    result = run_request(request, tmp_path / "run")
    assert (result.outcome, result.trouble) == ("ok", None), result.lines()
    assert {kind: bit for kind, (_, _, bit) in result.faults.items()} == {
        fault.kind: sum(each.kind == fault.kind for each in FAULTS) for fault in FAULTS
    }
    assert (
        sum(
            len(logged_events(RunDirectory(tmp_path / "run"), "DuplicateAnswered", name))
            for name in BROKERS
        )
        >= 2
    )


@pytest.mark.interop
def test_librdkafka_loses_no_first_batch_if_new_logs_begin_with_sequence_0(tmp_path: Path) -> None:
    """KAFKA-15591: with brokers as released it reports the refused first batch of a new topic as
    written once the second one is, and it is in no log.
    """
    request = RunRequest(
        scenario=scenario("first_sequence_is_not_zero"),
        mode=Mode.PROCESSES,
        seed=2,
        settings={"kraftsim.unknown.producer": "out-of-order-in-new-logs"},
    )
    result = run_request(request, tmp_path / "run")
    assert (result.outcome, result.trouble) == ("ok", None), result.lines()
    assert result.faults["request-fault"][2] == 2, "first batches were refused"
