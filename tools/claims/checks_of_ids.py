"""The checks of KIP-730's claims: scenarios with producer ids, the benchmark of their variants, and
nodes in virtual time.
"""

from time import process_time

from kraftsim.core.decision import Decision
from kraftsim.core.timeline import Journal
from kraftsim.producer_ids.rules_allocation import ProducerIdControl
from tools.bench.bench_id_variants import SOURCES
from tools.bench.id_variants import simulation
from tools.bench.id_variants.node_tables import BLOCKS, DIRECT, LARGE, MANY_IDS, REPEATED, SMALL
from tools.bench.id_variants.nodes import RunCounts, RunParameters, Trouble, Way, simulate
from tools.claims.checks import CLAIMS, INTEROP, ScenarioRun, check, scenario

SEED = 1
SIMULATED_SECONDS = 20.0
TABLE = 'make bench ARGS="id_variants --seconds 20"'
NODES = 'make bench ARGS="id_variants --nodes"'
RULE_BLOCKS = 20_000


def _given_twice(run: ScenarioRun) -> int:
    ids = [each["producer_id"] for each in run.of("ProducerIdReturned", fresh=True)]
    return len(ids) - len(set(ids))


@check("kraftsim scenario producer_ids_survive_failover --seed 1")
def survive() -> dict[str, object]:
    run = scenario("kraftsim scenario producer_ids_survive_failover --seed 1")
    return {
        "ids_of_survival": run.count("ProducerIdReturned", fresh=True),
        "twice": _given_twice(run),
    }


@check("kraftsim scenario controller_failover_during_allocation --seed 1")
def during_allocation() -> dict[str, object]:
    run = scenario("kraftsim scenario controller_failover_during_allocation --seed 1")
    died = [
        each
        for each in run.of("FaultInjected")
        if str(each["target"]).startswith(("controller", "leader"))
    ]
    return {
        "faults_at_controllers": len(died),
        "allocated": run.count("ProducerIdBlockAllocated"),
        "arrived": run.count("ProducerIdBlockReceived"),
        "ids_of_failover": run.count("ProducerIdReturned", fresh=True),
        "twice": _given_twice(run),
    }


@check("kraftsim scenario bridge_release --seed 1")
def bridge() -> dict[str, object]:
    run = scenario("kraftsim scenario bridge_release --seed 1")
    givers = [each["given_by"] for each in run.of("ProducerIdBlockAllocated")]
    return {
        "by_brokers": givers.count("broker"),
        "by_the_controller": givers.count("controller"),
        "twice": _given_twice(run),
    }


@check("kraftsim scenario zookeeper_faults_under_load --seed 1")
def zookeeper_fails() -> dict[str, object]:
    run = scenario("kraftsim scenario zookeeper_faults_under_load --seed 1")
    return {
        "faults_meanwhile": run.count("FaultTookEffect"),
        "blocks_meanwhile": run.count("ProducerIdBlockAllocated"),
        "twice": _given_twice(run),
    }


@check("kraftsim scenario zk_to_kraft_migration --seed 1")
def migrates() -> dict[str, object]:
    return {
        "twice_as_shipped": _given_twice(
            scenario("kraftsim scenario zk_to_kraft_migration --seed 1")
        )
    }


@check("kraftsim scenario zk_to_kraft_migration --seed 1 --bug KAFKA-15552")
def migrates_with_the_bug() -> dict[str, object]:
    run = scenario(
        "kraftsim scenario zk_to_kraft_migration --seed 1 --bug KAFKA-15552", violated=True
    )
    return {"twice_with_the_bug": _given_twice(run), "violations": len(run.result.violations)}


@check("kraftsim scenario broker_loses_cluster_action --seed 2 --set kraftsim.producer.ids=ending")
def text_without_rights() -> dict[str, object]:
    run = scenario(
        "kraftsim scenario broker_loses_cluster_action --seed 2 --set kraftsim.producer.ids=ending"
    )
    (began,) = (each["t_ns"] for each in run.of("PhaseBegan", phase="without-rights"))
    (ended,) = (each["t_ns"] for each in run.of("NodeFailed", node="broker-3"))
    return {
        "text_ends_after_ms": round((int(str(ended)) - int(str(began))) / 1e6),
        "text_refused": run.count("ProducerIdBlockRefused", node="broker-3", error_code=31),
        "text_clients_refused": _between(run, "InitProducerIdRefused"),
    }


@check(
    "kraftsim scenario broker_loses_cluster_action --seed 2 --set kraftsim.producer.ids=as-released"
)
def shipped_without_rights() -> dict[str, object]:
    run = scenario(
        "kraftsim scenario broker_loses_cluster_action --seed 2 --set "
        "kraftsim.producer.ids=as-released"
    )
    (began,), (ended,) = (
        run.of("PhaseBegan", phase=f"{word}-rights") for word in ("without", "with")
    )
    return {
        "release": run.of("NodeStarted", node="broker-3")[0]["release"],
        "seconds_without": round((int(str(ended["t_ns"])) - int(str(began["t_ns"]))) / 1e9, 1),
        "shipped_ends": run.count("NodeFailed", node="broker-3") > 0,
        "shipped_refused": run.count("ProducerIdBlockRefused", node="broker-3", error_code=31),
        "shipped_clients_refused": _between(run, "InitProducerIdRefused"),
        "shipped_fenced": run.count("BrokerFenced", broker_id=3) > 0,
    }


def _between(run: ScenarioRun, kind: str) -> int:
    """Return how often broker 3 rejected a client while its right was revoked."""
    (began,), (ended,) = (
        run.of("PhaseBegan", phase=f"{word}-rights") for word in ("without", "with")
    )
    return sum(
        int(str(began["t_ns"])) <= int(str(each["t_ns"])) <= int(str(ended["t_ns"]))
        for each in run.of(kind, node="broker-3")
    )


@check(f"{TABLE} # crash loops")
def crash_loops() -> dict[str, object]:
    second, fast = (
        simulation.simulate(
            simulation.Parameters(seconds=SIMULATED_SECONDS, crash_every_s=every), SEED
        )
        for every in (1.0, 0.2)
    )
    return {
        "seconds": round(SIMULATED_SECONDS),
        "restarts": second.crashes,
        "burned": second.unused,
        "used": second.given,
        "twice": second.doubled + fast.doubled,
        "years_of_a_crash_loop": round(fast.years_left(SIMULATED_SECONDS)),
    }


@check(f"{TABLE} # the controller's rule, CPU time", CLAIMS)
def rate_of_the_rule() -> dict[str, object]:
    control = ProducerIdControl(Journal(), lambda broker_id, epoch: True)
    began = process_time()
    for _ in range(RULE_BLOCKS):
        decided = control.decide_allocate(1, 1)
        assert isinstance(decided, Decision), "there are ids left"
        for record in decided.records:
            control.replay(record)
    rate = RULE_BLOCKS / (process_time() - began)
    return {
        "blocks_a_second": round(rate),
        "years_of_the_rule": round(2**63 / (rate * 1000) / (365.25 * 86_400)),
    }


@check(f"{TABLE} # prefetch")
def prefetch() -> dict[str, object]:
    found: dict[str, object] = {}
    for name, key in zip(SOURCES, ("shipped", "none", "eager"), strict=True):
        for rate in (1000, 5000):
            run = simulation.simulate(
                simulation.Parameters(
                    seconds=SIMULATED_SECONDS, ids_per_second=rate, source=SOURCES[name], brokers=1
                ),
                SEED,
            )
            found |= {
                f"waited_{key}_{rate}": len(run.stalls_ms),
                f"most_{key}_{rate}_ms": max(run.stalls_ms, default=0),
            }
    return found


@check(f"{TABLE} # sizes of blocks")
def sizes() -> dict[str, object]:
    found: dict[str, object] = {"seconds": round(SIMULATED_SECONDS)}
    for size in (1, 10, 100, 1000, 100_000):
        run = simulation.simulate(
            simulation.Parameters(seconds=SIMULATED_SECONDS, block_size=size, crash_every_s=10.0),
            SEED,
        )
        found |= {f"blocks_of_{size}": run.blocks, f"burned_by_{size}": run.unused}
    return found


@check(f"{NODES} # crash loops", INTEROP)
def node_crashes() -> dict[str, object]:
    found: dict[str, object] = {}
    for key, cleanly in (("stopped", True), ("killed", False)):
        run = simulate(
            Way(name="3.9"),
            RunParameters(
                seconds=20.0,
                clients=3,
                think_ms=30.0,
                crash_every_s=0.3,
                crashes_cleanly=cleanly,
                asks_all=True,
            ),
            SEED,
        )
        found |= {
            f"{key}_brokers": run.crashes,
            f"{key}_burned": run.taken - run.ids,
            "twice": run.doubled,
        }
    return found


@check(f"{NODES} # broken callers", INTEROP)
def broken_callers() -> dict[str, object]:
    found: dict[str, object] = {}
    for key, settings in (
        ("unlimited", {}),
        ("limited", {"kraftsim.producer.id.blocks.per.second": "10"}),
    ):
        run = simulate(Way(name=key, settings=settings), RunParameters(looper="broker-3"), SEED)
        found |= {
            f"records_{key}": round(run.records / run.seconds),
            f"years_{key}": round(run.years_left),
            f"others_waited_{key}_ms": round(max(run.waits_ms)),
        }
    return found


def _waits(way: Way, trouble: Trouble) -> RunCounts:
    return simulate(
        way,
        RunParameters(
            seconds=MANY_IDS.seconds,
            clients=MANY_IDS.clients,
            think_ms=MANY_IDS.think_ms,
            trouble=trouble,
        ),
        SEED,
    )


@check(f"{NODES} # waiting beside other requests", INTEROP)
def beside_requests() -> dict[str, object]:
    ways = {
        "shared": {},
        "own_channel": {BLOCKS: "own-channel"},
        "after_replay": {BLOCKS: "after-replay"},
    }
    found: dict[str, object] = {}
    for key, settings in ways.items():
        run = _waits(Way(name=key, settings=settings), Trouble.FORWARDED)
        found |= {
            f"stalls_{key}": run.stalls,
            f"most_{key}_ms": round(max(run.waits_ms)),
            f"slow_percent_{key}_ms": round(run.share_ms(99), 1),
            "twice": run.doubled,
        }
    return found


@check(f"{NODES} # waiting while the controller is away", INTEROP)
def controller_away() -> dict[str, object]:
    ways = {
        "at_once": {},
        "after_replay": {BLOCKS: "after-replay"},
        "own_disk": {BLOCKS: "own-disk"},
        "large": LARGE,
    }
    found: dict[str, object] = {}
    for key, settings in ways.items():
        run = _waits(Way(name=key, settings=settings), Trouble.CONTROLLER_AWAY)
        found |= {
            f"away_stalls_{key}": run.stalls,
            f"away_slow_percent_{key}_ms": round(run.share_ms(99)),
            f"away_clients_{key}": len(run.waits_ms),
        }
    return found


@check(f"{NODES} # mixed brokers", INTEROP)
def mixed() -> dict[str, object]:
    direct, by_controller, twice = [], [], 0
    for names in (
        (),
        ("broker-1",),
        ("broker-1", "broker-2"),
        ("broker-1", "broker-2", "broker-3"),
    ):
        way = Way(
            name="mixed",
            release="3.5",
            zookeeper=True,
            settings={"inter.broker.protocol.version": "3.0"},
            brokers=dict.fromkeys(names, DIRECT),
        )
        run = simulate(way, RunParameters(asks_all=True), SEED)
        direct.append(run.blocks.get("broker", 0))
        by_controller.append(run.blocks.get("controller", 0))
        twice += run.doubled
    return {"direct": direct, "by_controller": by_controller, "twice": twice}


@check(f"{NODES} # lost answers", INTEROP)
def lost_answers() -> dict[str, object]:
    found: dict[str, object] = {}
    for lost in (20, 50):
        for key, settings in (("shipped", SMALL), ("repeating", REPEATED)):
            run = simulate(Way(name=key, settings=settings), RunParameters(lost=lost), SEED)
            found |= {f"blocks_{key}_{lost}": sum(run.blocks.values()), "twice": run.doubled}
    return found


@check("kraftsim scenario producer_id_variants --seed 1")
def variants() -> dict[str, object]:
    return {
        "twice_of_variants": _given_twice(
            scenario("kraftsim scenario producer_id_variants --seed 1")
        )
    }
