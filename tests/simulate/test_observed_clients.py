"""What clients learned, read from their frames in simulated runs: it agrees with what kraftsim's
own clients emit, and the invariants hold it against the cluster, also for aiokafka.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from kraftsim.clients.events import (
    ClientInitialized,
    RecordAcknowledged,
    RecordFailed,
    RecordRead,
    RecordSent,
)
from kraftsim.clients.events_transactions import (
    MembershipLost,
    MemberStable,
    OffsetCommitSent,
    OffsetLearned,
    OffsetsAsked,
    TransactionalIdTaken,
    TransactionBegun,
    TransactionEndAsked,
    TransactionEnded,
    TransactionErred,
    TransactionOffsetAccepted,
    TransactionOffsetSent,
)
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.events.event import Event
from kraftsim.lab.explore.request import RunRequest
from tests.simulate.findings import SEEDS
from tests.simulate.observed_run import ObservedRun, run_observed

NAMES = ("client_id", "transaction", "question")
"""Fields that name a client or count its requests: the observer has names of its own."""
EXACT: tuple[tuple[type[Event], tuple[str, ...]], ...] = (
    (RecordAcknowledged, NAMES),
    (TransactionalIdTaken, NAMES),
    (ClientInitialized, NAMES),
    (TransactionOffsetAccepted, NAMES),
    (OffsetsAsked, NAMES),
    (OffsetLearned, NAMES),
    (MemberStable, NAMES),
    (OffsetCommitSent, NAMES),
)
"""Both accounts have the same events."""
UNSENT: tuple[type[Event], ...] = (RecordSent, TransactionBegun, TransactionOffsetSent)
"""An application may begin, send and ask without a request: before the batch is sent it aborts, or
the coordinator is not found. A record is not sent again under another sequence here.
"""


@cache
def one_run(name: str, seed: int, bugs: tuple[str, ...] = ()) -> ObservedRun:
    request = RunRequest(scenario=scenario(name), mode=Mode.SIM, seed=seed, bugs=bugs)
    return run_observed(request)


@pytest.mark.parametrize("seed", range(1, 4))
def test_frames_say_what_the_clients_emit(seed: int) -> None:
    """exactly_once_under_faults: producers, members and transactions of kraftsim's own clients.
    Each class of difference is a row here.
    """
    run = one_run("exactly_once_under_faults", seed)
    assert run.trouble is None and run.unreadable == 0
    for kind, without in EXACT:
        assert run.counted("own", kind, *without) == run.counted("read", kind, *without), kind
    for kind in UNSENT:
        assert run.counted("read", kind, *NAMES) <= run.counted("own", kind, *NAMES), kind
    # A record that was never sent has failed, and no frame says so.
    assert run.counted("read", RecordFailed, *NAMES, "reason") <= run.counted(
        "own", RecordFailed, *NAMES, "reason"
    )
    # A member drops what it fetched when it has lost the partition meanwhile.
    assert run.counted("own", RecordRead, *NAMES) <= run.counted("read", RecordRead, *NAMES)
    # A transaction without a request has no frames; error codes are those of the cause.
    without_cause = (*NAMES, "error_code")
    ended = run.counted("read", TransactionEnded, *without_cause)
    own_ended = run.counted("own", TransactionEnded, *without_cause)
    assert ended <= own_ended
    assert (own_ended - ended).total() == (
        run.counted("own", TransactionBegun).total() - run.counted("read", TransactionBegun).total()
    )
    assert run.counted("read", TransactionEndAsked, *NAMES) <= run.counted(
        "own", TransactionEndAsked, *NAMES
    )
    # The own client counts itself out before it emits: its generation is -1 then.
    for kind in (MembershipLost, TransactionErred):
        fields = (*NAMES, "generation_id", "error_code", "is_fatal")
        assert run.counted("read", kind, *fields) <= run.counted("own", kind, *fields), kind


INVARIANTS = (
    "acknowledged-records-in-final-log",
    "records-in-final-log-once",
    "transactions-atomic",
    "read-committed-isolation",
    "each-input-processed-once",
    "fenced-producers-write-nothing",
    "reads-below-high-watermark",
)


@pytest.mark.parametrize("seed", range(1, 4))
def test_invariants_hold_for_what_frames_say(seed: int) -> None:
    """No event of a client counts here but those that were read from frames."""
    run = one_run("exactly_once_under_faults", seed)
    assert [each for each in run.verdicts.values() if each.violation_count] == []
    assert [name for name in INVARIANTS if not run.verdicts[name].examined] == []


@pytest.mark.parametrize(
    "name",
    [
        "lost_produce_responses",
        "delayed_end_txn",
        "record_too_large",
        "transaction_timeout",
        "zombie_fenced_by_epoch",
        "zombie_fenced_by_generation",
        "offset_commits_pre_and_post_kip_447",
        "kip_447_upgrade_on_zookeeper",
        "producer_state_variants",
    ],
)
@pytest.mark.interop
def test_invariants_hold_for_what_frames_say_of_every_kind_of_fault(name: str) -> None:
    """Lost, late and repeated requests, batches that are split, fenced producers, old releases."""
    run = one_run(name, 1)
    assert [each for each in run.verdicts.values() if each.violation_count] == []
    assert run.unreadable == 0 and run.read


@pytest.mark.parametrize(
    ("name", "bug", "invariant", "seed"),
    [
        ("exactly_once_under_faults", "KAFKA-5376", "read-committed-isolation", 7),
        ("delayed_end_txn", "KAFKA-17754", "read-committed-isolation", 4),
        ("transaction_timeout", "KAFKA-14402", "fenced-producers-write-nothing", 1),
        ("lost_produce_responses", "KAFKA-5435", "records-in-final-log-once", 1),
    ],
)
def test_frames_show_a_defect_of_the_cluster(
    name: str, bug: str, invariant: str, seed: int
) -> None:
    """The violation is found by what was read from frames; own events of clients do not count."""
    assert any(
        one_run(name, seed + later, (bug,)).verdicts[invariant].violation_count
        for later in range(SEEDS)
    )


# aiokafka
# --------------------------------------------------------------------------------------------------

PROGRAM = Path(__file__).parent / "aiokafka_applications.py"
EXAMINED = {
    "ledger": (
        "acknowledged-records-in-final-log",
        "acknowledged-records-on-replicas",
        "records-in-final-log-once",
    ),
    "payments": (
        "acknowledged-records-in-final-log",
        "records-in-final-log-once",
        "transactions-atomic",
        "read-committed-isolation",
        "fenced-producers-write-nothing",
        "reads-below-high-watermark",
    ),
}


@cache
def verdicts(topic: str, first_seed: int, seeds: int, *bugs: str) -> dict[str, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), topic, str(first_seed), str(seeds), *bugs],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, dict[str, object]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("topic", ["ledger", "payments"])
def test_invariants_hold_for_what_aiokafka_learned_under_faults(topic: str) -> None:
    """Unmodified producers and consumers; brokers are killed, paused and cut off."""
    for seed, found in verdicts(topic, 1, 1).items():
        assert (found["outcome"], found["trouble"]) == ("ok", None), (seed, found)
        of_seed = found["verdicts"]
        assert isinstance(of_seed, dict), "verdicts by invariant"
        assert {name: of_seed[name] for name in EXAMINED[topic]} == dict.fromkeys(
            EXAMINED[topic], "ok"
        ), seed


@pytest.mark.parametrize(
    ("topic", "bug", "invariant"),
    [
        ("ledger", "KAFKA-1211", "acknowledged-records-on-replicas"),
        ("payments", "KAFKA-5376", "read-committed-isolation"),
    ],
)
def test_aiokafka_finds_a_defect_of_the_cluster(topic: str, bug: str, invariant: str) -> None:
    """A follower that truncates acknowledged records; a leader that hides what was aborted."""
    found = verdicts(topic, 1, 1, bug)["1"]
    assert found["outcome"] == "violated", found
    violations = found["violations"]
    assert isinstance(violations, list), "a line for each"
    assert [line for line in violations if line.startswith(f"{invariant}: ")]
