"""`kraftsim history`: histories of Jepsen and of runs, read from their files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftsim.analysis.export.edn import Edn, Keyword, edn, read_edn
from kraftsim.cli.history import operations_of
from kraftsim.cli.main import kraftsim
from kraftsim.clients.events import RecordRead, RecordSent
from kraftsim.clients.events_transactions import CopyRead, TransactionBegun, TransactionEnded
from kraftsim.clients.rules_history import NOT_ENDED, OperationOutcome
from kraftsim.events.event import Event
from tests.analysis.history import History

JEPSEN = """\
{:index 0, :time 10, :type :invoke, :process 0, :f :txn, :value [[:append 8 1] [:r 9 nil]]}
#jepsen.history.Op{:index 1, :time 11, :type :invoke, :process 1, :f :txn, :value [[:append 9 1]]}
{:index 2, :time 12, :type :ok, :process 0, :f :txn, :value [[:append 8 1] [:r 9 [1]]]}
{:index 3, :time 13, :type :info, :process 1, :f :txn, :value [[:append 9 1]], :error :timeout}
{:index 4, :time 14, :type :invoke, :process :nemesis, :f :kill, :value nil}
{:index 5, :time 15, :type :info, :process :nemesis, :f :kill, :value {"n1" :killed}}
{:index 6, :time 16, :type :invoke, :process 0, :f :txn, :value [[:append 8 2]]}
{:index 7, :time 17, :type :fail, :process 0, :f :txn, :value [[:append 8 2]]}
"""
ABORTED_READ = """\
{:index 8, :time 18, :type :invoke, :process 2, :f :txn, :value [[:r 8 nil]]}
{:index 9, :time 19, :type :ok, :process 2, :f :txn, :value [[:r 8 [1 2]]]}
"""


def checked(place: Path, *options: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(kraftsim, ["history", str(place), *options])


def test_history_of_jepsen_is_read_line_by_line() -> None:
    one, two, nemesis, aborted = operations_of(JEPSEN.splitlines())
    assert (one.appends, one.reads) == ([("8", "1")], (("9", ("1",)),))
    assert (one.began_at, one.ended_at, one.outcome) == (1, 3, OperationOutcome.OK)
    assert (two.ended_at, two.outcome) == (NOT_ENDED, OperationOutcome.INFO)
    assert not nemesis.appends
    assert aborted.outcome is OperationOutcome.FAIL


def test_history_in_one_vector_is_read_too() -> None:
    lines = [f"[{JEPSEN.splitlines()[0]}", *JEPSEN.splitlines()[1:-1]]
    assert len(operations_of([*lines, f"{JEPSEN.splitlines()[-1]}]"])) == 4
    assert len(operations_of([*lines, JEPSEN.splitlines()[-1], "]"])) == 4


def test_aborted_read_is_reported_with_its_witness(tmp_path: Path) -> None:
    file = tmp_path / "history.edn"
    file.write_text(JEPSEN)
    assert checked(file).exit_code == 0
    file.write_text(JEPSEN + ABORTED_READ)
    result = checked(file, "--json", str(tmp_path / "found.json"))
    assert result.exit_code == 1
    assert (
        "G1a at 8/2\n    T4 of 2 read 2 in 8, which T3 of 0 appended and aborted" in result.output
    )
    found = json.loads((tmp_path / "found.json").read_text())
    assert [each["kind"] for each in found["anomalies"] if each["is_violation"]] == ["G1a"]


def test_model_decides_what_is_a_violation(tmp_path: Path) -> None:
    file = tmp_path / "history.edn"
    file.write_text(
        "{:type :invoke, :process 0, :f :txn, :value [[:append 1 1] [:append 2 1]]}\n"
        "{:type :ok, :process 0, :f :txn, :value [[:append 1 1] [:append 2 1]]}\n"
        "{:type :invoke, :process 1, :f :txn, :value [[:r 1 nil] [:r 2 nil]]}\n"
        "{:type :ok, :process 1, :f :txn, :value [[:r 1 [1]] [:r 2 []]]}\n"
        "{:type :invoke, :process 1, :f :txn, :value [[:r 2 nil]]}\n"
        "{:type :ok, :process 1, :f :txn, :value [[:r 2 [1]]]}\n"
    )
    assert checked(file).exit_code == 0
    assert checked(file, "--model", "read-committed").exit_code == 0
    result = checked(file, "--model", "snapshot-isolation")
    assert result.exit_code == 1
    assert "G-single" in result.output
    assert "-rw-> T0 of 0  (2: did not read 1)" in result.output


def test_history_without_reads_is_unknown(tmp_path: Path) -> None:
    file = tmp_path / "history.edn"
    file.write_text(JEPSEN.splitlines()[-2] + "\n")
    assert checked(file).exit_code == 2


@pytest.mark.parametrize("text", ["{:type :ok", "7", "{:f :txn}", "{:type :ok} 8"])
def test_what_is_no_history_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "history.edn"
    file.write_text(JEPSEN + text + "\n")
    result = checked(file)
    assert result.exit_code == 3
    assert "line 9" in result.output


def transaction(outcome: str, *keys: str) -> list[Event]:
    """The events of one transaction."""
    name = f"c/{keys[0]}"
    begun = TransactionBegun(
        client_id="c", transactional_id="x", transaction=name, producer_id=1, producer_epoch=0
    )
    ended = TransactionEnded(
        client_id="c",
        transactional_id="x",
        transaction=name,
        producer_id=1,
        producer_epoch=0,
        outcome=outcome,
        error_code=0,
    )
    sent: list[Event] = [
        RecordSent(client_id="c", topic="t", partition=0, record_key=key, transaction=name)
        for key in keys
    ]
    return [begun, *sent, ended]


def read(*keys: str) -> list[Event]:
    """The events of a reader that reads to the end when all work is done."""
    records: list[Event] = [
        RecordRead(
            client_id="r",
            topic="t",
            partition=0,
            record_key=key,
            offset=offset,
            is_read_committed=True,
        )
        for offset, key in enumerate(keys)
    ]
    return [*records, CopyRead(client_id="r", topic="t")]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        (("a", "c"), "no violation"),
        (("a", "b", "c"), "G1a at t-0/b"),
        (("a",), "lost-append at t-0/c"),
        (("c", "a"), "order-of-time"),
    ],
)
def test_run_is_judged_by_the_events_of_its_clients(
    tmp_path: Path, keys: tuple[str, ...], found: str
) -> None:
    history = History()
    for event in (
        *transaction("committed", "a"),
        *transaction("aborted", "b"),
        *transaction("committed", "c"),
        *read(*keys),
    ):
        history.emit("h", event)
    history.write(tmp_path / "run")
    result = checked(tmp_path / "run")
    assert found in result.output
    assert result.exit_code == (0 if found == "no violation" else 1)


def test_edn_that_is_written_is_read_again() -> None:
    value: Edn = {Keyword("a"): [1, None, True, 'x"\\\n', Keyword("b"), {Keyword("c"): []}]}
    assert read_edn(edn(value)) == value
    assert read_edn("#{1 ; a set\n 2}") == [1, 2]
    assert read_edn('"\\u0041\\t"') == "A\t"
