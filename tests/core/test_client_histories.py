"""The checker of client histories, with a history made by hand for every anomaly and for what Kafka
permits.
"""

import time
from random import Random

import pytest

from kraftsim.clients.rules_history import (
    ClientOperation,
    HistoryRecorder,
    ListRead,
    OperationOutcome,
)
from kraftsim.clients.rules_history_anomalies import FORBIDDEN, Anomaly, AnomalyKind
from kraftsim.clients.rules_history_bank import (
    BankEntry,
    bank_anomalies,
    consistent_read,
    entry_of,
    missing_transfers,
    opening,
)
from kraftsim.clients.rules_history_check import anomalies_of
from kraftsim.clients.rules_history_graph import Graph

OK, FAIL, INFO = OperationOutcome.OK, OperationOutcome.FAIL, OperationOutcome.INFO


class Scripted:
    """A history of operations: those in one list run at the same time."""

    def __init__(self) -> None:
        self.recorder = HistoryRecorder()

    def begin(self, *appends: str, process: str = "w", is_final: bool = False) -> ClientOperation:
        """Begin an operation that appends LIST:VALUE."""
        operation = self.recorder.begin(process, is_final=is_final)
        operation.appends = [_append(each) for each in appends]
        return operation

    def end(self, operation: ClientOperation, *reads: str, outcome: OperationOutcome = OK) -> None:
        """End one that has read LIST:VALUE,VALUE."""
        self.recorder.end(operation, outcome, [_read(each) for each in reads])

    def done(
        self,
        *appends: str,
        reads: tuple[str, ...] = (),
        outcome: OperationOutcome = OK,
        process: str = "w",
    ) -> None:
        """Run an operation on its own."""
        self.end(self.begin(*appends, process=process), *reads, outcome=outcome)

    def read(self, *reads: str, is_final: bool = False) -> None:
        """Read on its own."""
        self.end(self.begin(process="r", is_final=is_final), *reads)

    def found(self) -> list[Anomaly]:
        """Return the anomalies."""
        return anomalies_of(self.recorder.operations)

    def kinds(self) -> set[str]:
        """Return their kinds."""
        return {str(each.kind) for each in self.found()}


def _append(text: str) -> tuple[str, str]:
    key, value = text.split(":")
    return key, value


def _read(text: str) -> ListRead:
    key, values = text.split(":")
    return key, tuple(values.split(",")) if values else ()


@pytest.fixture
def history() -> Scripted:
    """An empty one."""
    return Scripted()


def test_history_of_one_order_has_no_anomaly(history: Scripted) -> None:
    history.done("x:1", "y:1")
    history.done("x:2", reads=("x:1",))
    history.done("x:3", outcome=FAIL)
    history.read("x:1,2", "y:1")
    history.read("x:1,2", "y:1", is_final=True)
    assert history.found() == []


def test_value_that_was_not_appended(history: Scripted) -> None:
    history.done("x:1")
    history.read("x:1,9")
    assert history.kinds() == {"garbage-read"}


def test_aborted_value_is_g1a(history: Scripted) -> None:
    history.done("x:1", outcome=FAIL)
    history.read("x:1")
    assert history.kinds() == {"G1a"}


def test_value_of_unknown_outcome_may_be_read_or_not(history: Scripted) -> None:
    history.done("x:1", outcome=INFO)
    history.done("x:2", outcome=INFO)
    history.read("x:2", is_final=True)
    assert history.found() == []


def test_part_of_a_transaction_in_one_list_is_g1b(history: Scripted) -> None:
    history.done("x:1", "x:2")
    history.read("x:1")
    history.read("x:1,2")
    assert history.kinds() & {"G1b"}


def test_reader_may_see_its_own_part(history: Scripted) -> None:
    history.done("x:1", "x:2", reads=("x:1",))
    history.read("x:1,2")
    assert "G1b" not in history.kinds()


def test_value_twice_in_a_list(history: Scripted) -> None:
    history.done("x:1")
    history.read("x:1,1")
    assert history.kinds() == {"duplicate-elements"}


def test_two_orders_of_one_list(history: Scripted) -> None:
    one, two = history.begin("x:1", process="a"), history.begin("x:2", process="b")
    history.end(one)
    history.end(two)
    history.read("x:1,2")
    history.read("x:2,1")
    assert history.kinds() == {"incompatible-order"}


@pytest.mark.parametrize("is_final", [True, False])
def test_committed_value_that_a_later_read_lacks(history: Scripted, *, is_final: bool) -> None:
    history.done("x:1")
    history.done("x:2")
    history.read("x:2", is_final=is_final)
    assert "lost-append" in history.kinds()


def test_read_that_is_behind_is_not_a_loss(history: Scripted) -> None:
    history.done("x:1")
    history.done("x:2")
    history.read("x:1")
    assert not history.kinds() & set(FORBIDDEN["kafka"])


def test_final_read_that_is_behind_is_a_loss(history: Scripted) -> None:
    history.done("x:1")
    history.done("x:2")
    history.read("x:1", is_final=True)
    assert "lost-append" in history.kinds()


def test_unknown_transaction_that_is_there_in_part(history: Scripted) -> None:
    history.done("x:1", "y:1", outcome=INFO)
    history.done("y:2")
    history.read("x:1", "y:2", is_final=True)
    assert history.kinds() == {"torn-transaction"}


def test_write_cycle_is_g0_and_permitted_by_kafka(history: Scripted) -> None:
    one, two = (
        history.begin("x:1", "y:1", process="a"),
        history.begin("x:2", "y:2", process="b"),
    )
    history.end(one)
    history.end(two)
    history.read("x:1,2", "y:2,1")
    assert history.kinds() == {"G0"}
    assert AnomalyKind.WRITE_CYCLE not in FORBIDDEN["kafka"]
    assert AnomalyKind.WRITE_CYCLE in FORBIDDEN["read-committed"]


def test_transactions_that_read_each_other_are_g1c(history: Scripted) -> None:
    """Kafka forbids it by time: each was decided before the other one's read."""
    one, two = history.begin("x:1", process="a"), history.begin("y:1", process="b")
    history.end(one, "y:1")
    history.end(two, "x:1")
    assert history.kinds() == {"G1c", "order-of-time"}
    cycle = next(each for each in history.found() if each.kind is AnomalyKind.CIRCULAR)
    assert cycle.witness == (
        "T0 of a -wr-> T1 of b  (x: read 1)",
        "T1 of b -wr-> T0 of a  (y: read 1)",
    )


def test_circle_of_a_write_and_a_read_is_g1c_alone(history: Scripted) -> None:
    one, two = history.begin("x:1", "y:1", process="a"), history.begin("x:2", process="b")
    history.end(one)
    history.end(two, "y:1")
    history.read("x:2,1")
    assert history.kinds() == {"G1c"}


def test_fractured_read_is_g_single_and_permitted_by_kafka(history: Scripted) -> None:
    history.done("x:1", "y:1")
    history.read("x:1", "y:")
    history.read("x:1", "y:1")
    assert history.kinds() == {"G-single"}
    assert AnomalyKind.SINGLE in FORBIDDEN["snapshot-isolation"]
    assert AnomalyKind.SINGLE not in FORBIDDEN["kafka"]


def test_lost_update_is_g_single(history: Scripted) -> None:
    one, two = history.begin("x:1", process="a"), history.begin("x:2", process="b")
    history.end(one, "x:")
    history.end(two, "x:")
    history.read("x:1,2")
    assert history.kinds() == {"G-single"}


def test_write_skew_is_g2(history: Scripted) -> None:
    one, two = history.begin("x:1", process="a"), history.begin("y:1", process="b")
    history.end(one, "y:")
    history.end(two, "x:")
    history.read("x:1", "y:1")
    assert history.kinds() == {"G2"}
    assert AnomalyKind.ANTI_DEPENDENCIES not in FORBIDDEN["snapshot-isolation"]


def test_value_that_is_read_before_it_is_sent(history: Scripted) -> None:
    history.read("x:1")
    history.done("x:1")
    assert history.kinds() == {"order-of-time"}


def test_list_that_contradicts_the_order_of_time(history: Scripted) -> None:
    history.done("x:1", process="a")
    history.done("x:2", process="b")
    history.read("x:2,1")
    assert history.kinds() == {"order-of-time"}


def test_value_that_is_visible_while_an_earlier_one_is_undecided(history: Scripted) -> None:
    """Both lists agree with time alone; the contradiction needs both."""
    one = history.begin("x:1", process="a")
    two = history.begin("y:1", process="b")
    history.read("y:1")
    history.end(two, "x:1")
    history.end(one, "y:1", outcome=OK)
    assert "order-of-time" in history.kinds()


def test_value_of_an_unfinished_transaction_may_be_behind_a_later_one(history: Scripted) -> None:
    one = history.begin("x:1", process="a")
    history.done("x:2", process="b")
    history.end(one)
    history.read("x:2,1")
    history.read("x:2,1", is_final=True)
    assert history.found() == []


def test_value_that_is_appended_twice_is_refused(history: Scripted) -> None:
    history.done("x:1")
    history.done("x:1")
    with pytest.raises(ValueError, match="1 is appended to x more than once"):
        history.found()


def serial_history(transactions: int, seed: int, width: int = 3) -> HistoryRecorder:
    """Return a history of transactions one after another, each of which reads a list and appends to
    two.
    """
    random, recorder = Random(seed), HistoryRecorder()
    lists: dict[str, list[str]] = {}
    for number in range(transactions):
        operation = recorder.begin(f"p{number % 5}")
        # A new set of lists from time to time: the sizes of reads stay linear.
        keys = [f"{number // 50}-{random.randrange(width)}" for _ in range(2)]
        read = [(keys[0], tuple(lists.get(keys[0], ())))]
        outcome = random.choice((OK, OK, OK, FAIL))
        operation.appends = [(key, f"{number}.{place}") for place, key in enumerate(keys)]
        if outcome is OK:
            for key, value in operation.appends:
                lists.setdefault(key, []).append(value)
        recorder.end(operation, outcome, read)
    final = recorder.begin("auditor", is_final=True)
    recorder.end(final, OK, [(key, tuple(values)) for key, values in lists.items()])
    return recorder


@pytest.mark.parametrize("seed", range(10))
def test_serial_histories_are_clean_and_a_changed_read_is_not(seed: int) -> None:
    recorder = serial_history(200, seed)
    assert anomalies_of(recorder.operations) == []
    random = Random(seed)
    changed = random.choice(
        [each for each in recorder.operations if each.outcome is OK and len(each.reads[0][1]) > 1]
    )
    (key, values), *others = changed.reads
    changed.reads = [(key, (*values[1:], values[0])), *others]
    assert anomalies_of(recorder.operations)


def test_time_grows_with_the_size_of_the_history() -> None:
    """Ten times as many operations take about ten times as long: at most thirty times here."""
    seconds = []
    for transactions in (2_000, 20_000):
        operations = serial_history(transactions, 1).operations
        began = time.process_time()
        assert anomalies_of(operations) == []
        seconds.append(time.process_time() - began)
    assert seconds[1] < 30 * seconds[0] + 0.5


def test_long_cycle_is_found_without_recursion() -> None:
    graph, length = Graph(), 50_000
    nodes = [graph.node() for _ in range(length)]
    for node in nodes:
        graph.edge(node, (node + 1) % length, "then")
    [component] = graph.cyclic_components()
    assert len(component) == length
    assert len(graph.cycle_through(graph.edges_of(0)[0], frozenset(component))) == length


def test_cycle_has_as_few_expensive_edges_as_possible() -> None:
    graph = Graph()
    one, two, three, four = (graph.node() for _ in range(4))
    graph.edge(one, two, "rw")
    graph.edge(two, one, "rw")
    graph.edge(two, three, "ww")
    graph.edge(three, four, "ww")
    graph.edge(four, one, "ww")
    [component] = graph.cyclic_components()
    first = graph.edges_of(one)[0]
    cycle = graph.cycle_through(first, frozenset(component), expensive="rw")
    assert [edge.kind for edge in cycle] == ["rw", "ww", "ww", "ww"]


# --------------------------------------------------------------------------------------------------
# The bank

START = opening(accounts=3, balance=100)
SOUND = [
    BankEntry(0, 1, 0, -10, 90),
    BankEntry(0, 1, 1, 10, 110),
    BankEntry(0, 2, 1, -5, 105),
    BankEntry(0, 2, 2, 5, 105),
]


def of_bank(entries: list[BankEntry]) -> list[str]:
    """Return the kinds of the anomalies of one read."""
    return [str(each.kind) for each in bank_anomalies("r", 1, START, entries)]


def test_sum_of_a_bank_is_constant_in_every_prefix() -> None:
    assert of_bank(SOUND) == []
    assert consistent_read(0, START, SOUND).balances == {0: 90, 1: 105, 2: 105}
    assert missing_transfers("r", {0: 2}, START, SOUND) == []


def test_transfer_that_is_seen_in_part_is_not_read_yet() -> None:
    read = consistent_read(0, START, SOUND[:3])
    assert (read.number, read.total) == (1, START.total)
    assert [str(each.kind) for each in missing_transfers("r", {0: 2}, START, SOUND[:3])] == [
        "lost-append"
    ]


def test_transfer_that_is_made_twice_is_a_lost_update() -> None:
    assert of_bank([*SOUND, SOUND[2], SOUND[3]]) == ["lost-update"]


def test_balance_from_an_old_state_is_a_lost_update_and_changes_the_total() -> None:
    stale = [*SOUND[:2], BankEntry(0, 2, 1, -5, 95), SOUND[3]]
    assert of_bank(stale) == ["lost-update", "wrong-total"]


def test_entry_is_read_from_its_key() -> None:
    assert entry_of(SOUND[0].key) == SOUND[0]
