"""Both forms of each invariant over the same histories: the online check, and the SQL as run by
Spark and, independently, by DuckDB.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from kraftsim.analysis import verdicts as sql
from kraftsim.analysis.dataset import Dataset
from kraftsim.analysis.ingest import ingest_run
from kraftsim.analysis.queries import SparkSqlQueries
from kraftsim.analysis.query_tasks import SparkTaskQueries
from kraftsim.analysis.verdicts import Row, by_run, find_rows
from kraftsim.analysis.views import Runs, one_run
from kraftsim.analysis.witnesses import fetch_witnesses
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import INVARIANTS, Oracle
from kraftsim.invariants.verdict import (
    VIOLATIONS_KEPT_MAX,
    Outcome,
    Verdict,
    worst,
)
from tests.analysis.broker_cases import add_broker_events
from tests.analysis.cases import CASES, Case
from tests.analysis.client_view_cases import add_client_view_events
from tests.analysis.connection_cases import add_connection_events
from tests.analysis.coordinator_cases import add_coordinator_events
from tests.analysis.durable_metadata_cases import started
from tests.analysis.election_cases import add_election_events
from tests.analysis.event_factories import (
    NO_PRODUCER,
    acknowledged,
    allocated,
    appended,
    committed,
    elected,
    final_batch,
    final_log,
    final_record,
    flushed,
    holds,
    left,
    loaded,
    received,
    registered,
    returned,
    said,
    sent,
    settled,
    stored,
    truncated_to,
    voted,
    written,
    wrote_snapshot,
)
from tests.analysis.history import History
from tests.analysis.joining_cases import add_join_events
from tests.analysis.member_cases import add_member_events
from tests.analysis.metadata_log_cases import add_voter_events, appended_by_leader, replicated
from tests.analysis.migration_cases import add_controller_events, add_migration_events
from tests.analysis.oracle_by_duckdb import as_one, rows_by_duckdb, rows_of_all_by_duckdb
from tests.analysis.owner_cases import add_admin_events, add_owner_events
from tests.analysis.pending_cases import add_pending_events
from tests.analysis.quota_cases import add_quota_events
from tests.analysis.random_transactions import add_transaction_events
from tests.analysis.reading_cases import add_read_events
from tests.analysis.remote_cases import add_remote_events
from tests.analysis.replica_cases import add_replica_events
from tests.analysis.sequence_retry_cases import add_sequence_events
from tests.analysis.share_cases import add_share_consumer_events
from tests.analysis.share_group_cases import add_share_group_events
from tests.analysis.share_leader_cases import add_share_leader_events
from tests.analysis.share_state_cases import add_share_events
from tests.analysis.spent_cases import add_spent_events
from tests.analysis.tiered_cases import add_tiering_events
from tests.analysis.topic_config_cases import add_topic_config_events
from tests.analysis.two_phase_cases import add_two_phase_events
from tests.analysis.waste_cases import add_waste_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EveryVerdict = dict[str, Verdict]


def ingested(history: History, run: Path) -> Path:
    """Write a history as the event log of a run, and return its Parquet file."""
    run.mkdir(exist_ok=True)
    history.write(run)
    (run / "events").mkdir(exist_ok=True)
    if not history.events:
        (run / "events" / "empty.1.jsonl").touch()
    return Path(ingest_run(run).parquet)


def directories(histories: Sequence[History], place: Path) -> dict[str, Path]:
    """Write histories as the event logs of runs, and return their directories by run."""
    found = {f"run-{number}": place / str(number) for number in range(len(histories))}
    for history, run in zip(histories, found.values(), strict=True):
        history.write(run)
        if not history.events:
            (run / "events" / "empty.1.jsonl").touch()
    return found


def sql_results_of(histories: Sequence[History], runs: Path) -> dict[str, EveryVerdict]:
    """Return the SQL results of each history from one query over all: planning the queries takes
    longer than executing them.
    """
    together = as_one(directories(histories, runs), runs / "all")
    answers = rows_of_all_by_duckdb(together, INVARIANTS.all())
    return {run: verdicts_of(together, run, rows) for run, rows in answers.items()}


def verdicts_of(runs: Runs, run: str, rows: Sequence[Row]) -> EveryVerdict:
    """Return the verdicts of SQL on a run in the shape of the online results."""
    witnesses = fetch_witnesses(
        Dataset(runs.root).directory(run), [place for row in rows for place in row.positions]
    )
    verdicts = sql.verdicts_of(rows, INVARIANTS.all(), witnesses)
    return {name: in_one_order(verdict) for name, verdict in verdicts.items()}


def in_one_order(verdict: Verdict) -> Verdict:
    """Return the result with its violations sorted, and without what `for_run` sets: the check
    returns them in order of detection, SQL by their first evidence event.
    """
    violations = tuple(sorted(verdict.violations, key=lambda each: each.key))
    return replace(verdict, violations=violations, rule="", source="", must_exercise=False)


def online(history: History) -> EveryVerdict:
    return {
        name: in_one_order(verdict)
        for name, verdict in history.check_results(must_exercise=INVARIANTS.names()).items()
    }


def random_history(seed: int) -> History:
    """Return a mostly correct history: blocks, ids and batches are sometimes repeated, lost or
    misplaced.
    """
    random = Random(seed)
    history = History()
    careless = random.choice((0.0, 0.02, 0.3))

    def slip() -> bool:
        return random.random() < careless

    next_id, end_offset, used, broker_epoch = 0, 0, [], 1
    blocks: list[tuple[int, int]] = []
    sequences = [0, 0, 0]
    log: list[tuple[int, int, tuple[int, int, int]]] = []
    for _ in range(random.randrange(20, 120)):
        action = random.randrange(4)
        if action == 0:
            size = random.randrange(1, 12)
            if random.random() < 0.3:
                broker_epoch = max(1, next_id)
                history.emit("controller", registered(broker_epoch))
            history.emit(
                "controller",
                allocated(
                    next_id, next_id + size, broker_epoch=broker_epoch - (1 if slip() else 0)
                ),
            )
            blocks.append((next_id, next_id + size))
            history.emit(
                "broker",
                received(next_id, next_id + size),
                incarnation=random.choice((1, 2)) if slip() else 1,
            )
            next_id += 0 if slip() else size - random.randrange(size) if slip() else size
        elif action == 1 and blocks:
            producer_id = (
                random.randrange(next_id + 5)
                if slip()
                else random.randrange(*random.choice(blocks))
            )
            if slip() or producer_id not in used:
                history.emit("broker", returned(producer_id, fresh=not slip(), owner="t"))
                used.append(producer_id)
        else:
            producer = random.randrange(3)
            size = random.randrange(1, 4)
            key = (producer, 0, sequences[producer]) if random.random() < 0.9 else NO_PRODUCER
            if slip():
                end_offset = max(0, end_offset - random.randrange(6))
                log = [batch for batch in log if batch[1] < end_offset]
            history.emit("broker", appended(end_offset, end_offset + size - 1, key))
            if not slip():
                history.emit("client", sent(f"k{end_offset}"))
            history.emit("client", acknowledged(-1 if slip() else end_offset, f"k{end_offset}"))
            log.append((end_offset, end_offset + size - 1, key))
            end_offset += size
            sequences[producer] += 0 if slip() else size
    add_quorum_events(history, random, slip)
    add_replica_events(history, random, slip)
    add_transaction_events(history, random, slip)
    add_coordinator_events(history, random, slip)
    history.emit(
        "harness",
        settled("leader", random.randrange(9000, 12_000) if slip() else 500, is_settled=not slip()),
    )
    if random.random() < 0.9:
        history.emit(
            "final", final_log(end_offset, len(log), log_start_offset=random.choice((0, 0, 3)))
        )
        for first_offset, last_offset, key in log:
            if not slip():
                history.emit("final", final_batch(first_offset, last_offset, key))
                for _ in range(2 if slip() else 1):
                    history.emit("final", final_record(first_offset, f"k{first_offset}"))
    for add_events in (
        add_tiering_events,
        add_migration_events,
        add_connection_events,
        add_election_events,
        add_voter_events,
    ):
        add_events(history, random, slip)
    for add_events in (
        add_broker_events,
        add_sequence_events,
        add_join_events,
        add_read_events,
        add_client_view_events,
        add_member_events,
        add_share_group_events,
        add_owner_events,
        add_admin_events,
        add_waste_events,
        add_two_phase_events,
        add_share_consumer_events,
        add_controller_events,
        add_pending_events,
        add_spent_events,
        add_share_leader_events,
        add_remote_events,
        add_quota_events,
        add_topic_config_events,
        add_share_events,
    ):
        add_events(history, random, slip)
    return history


def add_quorum_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let three controllers elect, write, flush, commit, restart and truncate, mostly correctly."""
    nodes = ("controller-1", "controller-2", "controller-3")
    incarnation, votes = dict.fromkeys(nodes, 1), dict.fromkeys(nodes, -1)
    end_offset = high_watermark = 0
    starts: list[tuple[int, int]] = []

    def emit(node: str, event: Event) -> None:
        history.emit(node, event, incarnation=incarnation[node])

    for leader_epoch in range(1, random.randrange(2, 6)):
        leader = random.choice(nodes)
        if random.random() < 0.3:
            incarnation[leader] += 1
            emit(leader, flushed(end_offset - (1 if slip() else 0)))
            emit(
                leader,
                started(
                    leader_epoch - (2 if slip() else 1),
                    voted_id=random.randrange(3) if slip() else votes[leader],
                ),
            )
        for node in nodes:
            if not slip():
                votes[node] = nodes.index(leader)
                emit(node, stored(leader_epoch, votes[node]))
            emit(node, voted(leader_epoch, nodes.index(leader)))
            if slip():
                emit(node, voted(leader_epoch, random.randrange(3)))
        for (epoch, first_offset), (_, following) in zip(
            starts, [*starts[1:], (0, end_offset)], strict=False
        ):
            emit(leader, holds(leader_epoch, epoch, first_offset, following - (2 if slip() else 0)))
        emit(leader, elected(leader_epoch))
        if slip():
            emit(random.choice(nodes), elected(leader_epoch))
        previous_epoch = starts[-1][0] if starts else -1
        starts.append((leader_epoch, end_offset))
        for _ in range(random.randrange(1, 5)):
            for node in nodes:
                emit(
                    node,
                    (appended_by_leader if node == leader else replicated)(end_offset, end_offset),
                )
                emit(
                    node,
                    written(
                        leader_epoch,
                        end_offset,
                        random.randrange(9) if slip() else end_offset,
                        previous_epoch=previous_epoch,
                    ),
                )
            end_offset, previous_epoch = end_offset + 1, leader_epoch
            for node in nodes:
                if not slip():
                    emit(node, flushed(end_offset))
            high_watermark = max(0, high_watermark - 2) if slip() else end_offset
            emit(leader, committed(leader_epoch, high_watermark, starts[-1][0]))
            if random.random() < 0.3:
                emit(leader, wrote_snapshot(high_watermark + (1 if slip() else 0)))
        follower = random.choice(nodes)
        emit(follower, replicated(end_offset, end_offset))
        emit(follower, written(leader_epoch, end_offset, previous_epoch=leader_epoch))
        emit(follower, random.choice((truncated_to, loaded))(high_watermark - (3 if slip() else 0)))
        emit(follower, flushed(end_offset))
    history.emit("final", left(end_offset - (2 if slip() else 0), controller=random.choice(nodes)))
    history.emit("final", said(0, end_offset, "x"))
    history.emit("final", said(1, end_offset, "y" if slip() else "x"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.invariant}: {case.name}")
def test_checks_give_the_expected_result_of_every_row(case: Case) -> None:
    """The online form, which stops a simulation."""
    verdict = online(case.history())[case.invariant]
    assert (verdict.outcome, verdict.examined) == (case.outcome, case.examined)
    assert tuple(violation.key for violation in verdict.violations) == case.keys
    if case.witnesses:
        assert tuple(violation.witnesses for violation in verdict.violations) == case.witnesses


@pytest.fixture(scope="module")
def sql_results_of_cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EveryVerdict]:
    """Return the SQL result of every row of the table."""
    return sql_results_of([case.history() for case in CASES], tmp_path_factory.mktemp("cases"))


@pytest.mark.parametrize(
    "number",
    range(len(CASES)),
    ids=lambda number: f"{CASES[number].invariant}: {CASES[number].name}",
)
def test_sql_agrees_with_the_checks_on_every_row(
    number: int, sql_results_of_cases: dict[str, EveryVerdict]
) -> None:
    """All invariants read every history, so each also sees events that do not concern it."""
    assert sql_results_of_cases[f"run-{number}"] == online(CASES[number].history())


@pytest.fixture(scope="module")
def sql_results_of_random_histories(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, EveryVerdict]:
    """Return the SQL results of the random histories of every seed in use, by `run-SEED`."""
    selected = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function) and request.fixturename in item.fixturenames
    ]
    seeds = sorted(
        {seed for item in selected if isinstance(seed := item.callspec.params["seed"], int)}
    )
    results = sql_results_of(
        [random_history(seed) for seed in seeds], tmp_path_factory.mktemp("random")
    )
    return {f"run-{seed}": results[f"run-{number}"] for number, seed in enumerate(seeds)}


@pytest.mark.parametrize("seed", range(20))
def test_sql_agrees_with_the_checks_on_random_histories(
    seed: int, sql_results_of_random_histories: dict[str, EveryVerdict]
) -> None:
    """The same outcome, count, messages and evidence events."""
    assert sql_results_of_random_histories[f"run-{seed}"] == online(random_history(seed))


@pytest.mark.parametrize("seed", [17, 20, 26, 29])
def test_check_and_sql_keep_the_same_violations_beyond_the_limit(
    seed: int, sql_results_of_random_histories: dict[str, EveryVerdict]
) -> None:
    """Those whose first evidence events are earliest: a report does not depend on the form that
    produced it.
    """
    expected = online(random_history(seed))
    assert max(verdict.violation_count for verdict in expected.values()) > VIOLATIONS_KEPT_MAX
    assert sql_results_of_random_histories[f"run-{seed}"] == expected


def test_elections_seen_before_commits_are_kept_as_in_sql(tmp_path: Path) -> None:
    """More violations than are kept: those of the first commits, and of one commit those of the
    first event id.
    """
    history = History()
    for node in ("d", "c", "b"):
        history.emit(node, elected(9))
    for number in range(VIOLATIONS_KEPT_MAX // 2):
        history.emit("a", committed(3, number + 1))
    kept = online(history)["leader-completeness"]
    assert kept.violation_count == 3 * (VIOLATIONS_KEPT_MAX // 2)
    earliest = {(f"a.1.{number}", f"{node}.1.0") for number in range(6) for node in "bcd"}
    assert {each.witnesses for each in kept.violations} == {
        *earliest,
        ("a.1.6", "b.1.0"),
        ("a.1.6", "c.1.0"),
    }
    assert sql_results_of([history], tmp_path)["run-0"]["leader-completeness"] == kept


def test_what_violates_an_invariant_was_examined() -> None:
    """SQL looks for violations only where something was examined."""
    histories = [case.history() for case in CASES]
    histories += [random_history(seed) for seed in range(40)]
    violated = [
        (verdict.invariant, verdict.examined)
        for history in histories
        for verdict in online(history).values()
        if verdict.violation_count
    ]
    assert {name for name, _ in violated} == set(INVARIANTS.names())
    unexamined = {name for name, examined in violated if not examined}
    assert unexamined == {each.name for each in INVARIANTS.all() if not each.needs_examined}


def test_random_histories_reach_every_outcome() -> None:
    """A comparison of two forms that always return ok would prove nothing."""
    reached = {
        (name, verdict.outcome)
        for seed in range(100)
        for name, verdict in online(random_history(seed)).items()
    }
    for name in INVARIANTS.names():
        assert {(name, Outcome.OK), (name, Outcome.VIOLATED)} <= reached
    assert ("acknowledged-records-in-final-log", Outcome.UNKNOWN) in reached


def test_many_runs_in_one_query_are_checked_independently(tmp_path: Path) -> None:
    """Equal ids and positions in two runs are no violation: a campaign checks thousands of runs
    with one query.
    """
    histories = [random_history(seed) for seed in (0, 0, 5)]
    alone = {}
    for number, history in enumerate(histories):
        run = one_run(ingested(history, tmp_path / f"run-{number}"))
        rows = rows_by_duckdb(run.root / f"run=run-{number}", INVARIANTS.all())
        alone[f"run-{number}"] = verdicts_of(run, f"run-{number}", rows)
    runs = as_one(directories(histories, tmp_path), tmp_path / "all")
    together = rows_of_all_by_duckdb(runs, INVARIANTS.all())
    assert {run: verdicts_of(runs, run, rows) for run, rows in together.items()} == alone
    assert any(found.violation_count for verdicts in alone.values() for found in verdicts.values())


@pytest.mark.spark
@pytest.mark.interop
def test_spark_agrees_with_the_checks(spark: "SparkSession", tmp_path: Path) -> None:
    """Histories that violate each invariant, and clean ones, in one query; the rest of the table is
    checked with DuckDB only.
    """
    chosen = [random_history(seed) for seed in (0, 5)]
    chosen += [
        case.history()
        for case in CASES
        if case.name in ("hostile names", "the final log was not read")
    ]
    runs = as_one(directories(chosen, tmp_path), tmp_path / "all")
    found = by_run(find_rows(SparkSqlQueries(spark, runs), runs, INVARIANTS.all()))
    by_tasks = by_run(find_rows(SparkTaskQueries(spark, runs), runs, INVARIANTS.all()))
    counted = {run: Counter(rows) for run, rows in found.items()}
    assert counted == {run: Counter(rows) for run, rows in by_tasks.items()}
    assert counted == {
        run: Counter(rows) for run, rows in rows_of_all_by_duckdb(runs, INVARIANTS.all()).items()
    }
    for manifest, history in zip(runs.manifests, chosen, strict=True):
        run = manifest.run
        for name, verdict in verdicts_of(runs, run, found[run]).items():
            expected = online(history)[name]
            assert (verdict.outcome, verdict.examined, verdict.violation_count) == (
                expected.outcome,
                expected.examined,
                expected.violation_count,
            )


def test_unexercised_required_invariants_are_vacuous_others_not_applicable() -> None:
    """An invariant that examined nothing is never ok; it fails a run only if the scenario requires
    it.
    """
    verdicts = History().check_results(must_exercise=("producer-id-unique",))
    assert verdicts["producer-id-unique"].outcome is Outcome.VACUOUS
    assert {
        verdict.outcome for name, verdict in verdicts.items() if name != "producer-id-unique"
    } == {Outcome.NOT_APPLICABLE}
    assert worst(verdicts.values()) is Outcome.VACUOUS
    assert worst(History().check_results().values()) is Outcome.VACUOUS, (
        "a run in which nothing was examined proves nothing"
    )


def test_the_result_of_a_run_is_its_worst_result() -> None:
    """violated > unknown > vacuous > ok; not applicable is ignored."""
    of = {outcome: Verdict(invariant="x", outcome=outcome, examined=1) for outcome in Outcome}
    assert worst(of.values()) is Outcome.VIOLATED
    assert worst([of[Outcome.OK], of[Outcome.UNKNOWN], of[Outcome.VACUOUS]]) is Outcome.UNKNOWN
    assert worst([of[Outcome.OK], of[Outcome.VACUOUS]]) is Outcome.VACUOUS
    assert worst([of[Outcome.OK], of[Outcome.NOT_APPLICABLE]]) is Outcome.OK


def test_a_violation_is_reported_once_by_the_event_that_shows_it() -> None:
    """A simulation stops there; later events of the same violation are not reported again."""
    oracle = Oracle()
    history = History()
    for producer_id in (1, 2, 1, 1):
        history.emit("b", returned(producer_id))
    reported = [
        [violation.key for violation in oracle.examine(envelope, event)]
        for envelope, event in history.events
        if oracle.watches(event)
    ]
    assert [["1"] if "1" in keys else [] for keys in reported] == [[], [], ["1"], []]


def test_an_unknown_required_invariant_is_refused() -> None:
    """A misspelt name in a scenario must not pass as a satisfied requirement."""
    with pytest.raises(KeyError, match="producer-id-unqiue"):
        Oracle(must_exercise=("producer-id-unqiue",))


def test_violations_beyond_the_limit_are_counted() -> None:
    """A thousand repetitions of one violation are not useful, their number is."""
    history = History()
    for producer_id in [*range(50), *range(50)]:
        history.emit("b", returned(producer_id))
    verdict = history.check_results()["producer-id-unique"]
    assert (verdict.violation_count, len(verdict.violations)) == (50, VIOLATIONS_KEPT_MAX)
