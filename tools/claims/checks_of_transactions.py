"""The checks of KIP-447's claims: scenarios with exactly-once apps, and the benchmark of fencing
for claims without a test.
"""

from tools.bench.bench_fencing import PAUSES_MS, TIMEOUTS_MS
from tools.bench.fencing.measurements import aborted_needlessly, takeover
from tools.bench.tasks.counting import count
from tools.claims.checks import INTEROP, ScenarioRun, check, scenario

FENCING = "make bench ARGS=fencing"


def _ended(run: ScenarioRun) -> dict[str, int]:
    outcomes = [each["outcome"] for each in run.of("TransactionEnded")]
    return {
        "transactions": len(outcomes),
        "committed": outcomes.count("committed"),
        "aborted": outcomes.count("aborted"),
        "unknown": outcomes.count("unknown"),
    }


def _output_counts(run: ScenarioRun) -> dict[str, int]:
    """Return the number of input lines, and how many of them a read_committed consumer finds once,
    more than once or never in the output.
    """
    (expected,) = run.of("CopyExpected")
    lines = {
        each["record_key"] for each in run.of("RecordAcknowledged", topic=expected["input_topic"])
    }
    read = run.of("RecordRead", topic=expected["output_topic"], is_read_committed=True)
    places = {(each["partition"], each["offset"]): each["record_key"] for each in read}
    counts = list(places.values())
    return {
        "lines": len(lines),
        "once": sum(counts.count(line) == 1 for line in lines),
        "more_than_once": sum(counts.count(line) > 1 for line in lines),
    }


@check("kraftsim scenario zombie_fenced_by_epoch --seed 1")
def by_epoch() -> dict[str, object]:
    run = scenario("kraftsim scenario zombie_fenced_by_epoch --seed 1")
    return {
        "took_the_id": run.count("TransactionalIdTaken"),
        "fenced": run.count("ProducerFenced"),
        **_ended(run),
    }


@check("kraftsim scenario coordinator_failover_every_state --seed 1")
def every_state() -> dict[str, object]:
    run = scenario("kraftsim scenario coordinator_failover_every_state --seed 1")
    by_id: dict[object, set[object]] = {}
    for each in run.of("TransactionStateChanged"):
        by_id.setdefault(each["transactional_id"], set()).add(each["partition"])
    return {
        "ids": len(by_id),
        "partitions_an_id": max(map(len, by_id.values())),
        "loaded": run.count("TransactionsLoaded"),
        "changes": run.count("TransactionStateChanged"),
        "markers": run.count("MarkerAppended"),
        "violations": len(run.result.violations),
        **_ended(run),
    }


@check("kraftsim scenario offset_commits_pre_and_post_kip_447 --seed 1")
def old_and_new() -> dict[str, object]:
    run = scenario("kraftsim scenario offset_commits_pre_and_post_kip_447 --seed 1")
    return {**_ended(run), **_output_counts(run)}


@check("kraftsim scenario transaction_timeout --seed 1")
def times_out() -> dict[str, object]:
    run = scenario("kraftsim scenario transaction_timeout --seed 1")
    return {
        "begun": run.count("TransactionBegun"),
        "forced": run.count("TransactionAbortForced", reason="timeout"),
        "fenced": run.count("ProducerFenced"),
    }


@check("kraftsim scenario kip_447_upgrade --seed 2")
def two_bounces_on_kraft() -> dict[str, object]:
    run = scenario("kraftsim scenario kip_447_upgrade --seed 2")
    return {
        "kraft_transactions": _ended(run)["transactions"],
        "kraft_twice": _output_counts(run)["more_than_once"],
    }


@check("kraftsim scenario kip_447_upgrade_on_zookeeper --seed 2", INTEROP)
def two_bounces() -> dict[str, object]:
    run = scenario("kraftsim scenario kip_447_upgrade_on_zookeeper --seed 2")
    releases = [str(each["release"]) for each in run.of("NodeStarted", role="broker")]
    return {
        "upgrade_transactions": _ended(run)["transactions"],
        "from_release": releases[0],
        "to_release": releases[-1],
        **_output_counts(run),
    }


@check("kraftsim scenario kip_447_upgrade_on_zookeeper --seed 2 --work bounces=1", INTEROP)
def one_bounce() -> dict[str, object]:
    run = scenario(
        "kraftsim scenario kip_447_upgrade_on_zookeeper --seed 2 --work bounces=1", violated=True
    )
    return {"lines_twice_by_one_bounce": _output_counts(run)["more_than_once"]}


@check("kraftsim scenario zombie_fenced_by_generation --seed 1")
def by_generation() -> dict[str, object]:
    return {
        "twice": _output_counts(scenario("kraftsim scenario zombie_fenced_by_generation --seed 1"))[
            "more_than_once"
        ]
    }


@check("kraftsim scenario exactly_once_under_faults --seed 1")
def under_faults() -> dict[str, object]:
    run = scenario("kraftsim scenario exactly_once_under_faults --seed 1")
    return {"faults": run.count("FaultTookEffect"), "twice": _output_counts(run)["more_than_once"]}


@check(f"{FENCING} # a timeout of 60 s")
def a_minute() -> dict[str, object]:
    session_ms = 6000
    found = takeover(dies=True, transaction_ms=60_000, session_ms=session_ms)
    return {
        "minute_ms": found.milliseconds,
        "minute_retries": found.retriable_errors,
        "minute_session_ms": session_ms,
        "minute_memberships_lost": found.memberships_lost,
    }


@check(f"{FENCING} # pauses", INTEROP)
def pauses() -> dict[str, object]:
    aborted = {
        f"aborted_with_{timeout}": sum(aborted_needlessly(pause, timeout) for pause in PAUSES_MS)
        for timeout in TIMEOUTS_MS
    }
    return {**aborted, "pauses": len(PAUSES_MS)}


def _tasks(partitions: int) -> dict[str, object]:
    task, thread = count(partitions, 1)
    found: dict[str, object] = {"input_partitions": partitions, "threads": task.threads}
    for key, each in (("task", task), ("thread", thread)):
        found |= {
            f"{key}_producers": each.producers,
            f"{key}_connections": each.connections,
            f"{key}_records_a_transaction": round(each.records / each.transactions, 1),
            f"{key}_records_a_second": round(each.records / each.virtual_ms * 1000),
        }
    return found


@check('make bench ARGS="tasks --partitions 100"', INTEROP)
def a_hundred_tasks() -> dict[str, object]:
    return {f"many_{name}": value for name, value in _tasks(100).items()}


@check('make bench ARGS="tasks --partitions 10"')
def ten_tasks() -> dict[str, object]:
    return {f"few_{name}": value for name, value in _tasks(10).items()}
