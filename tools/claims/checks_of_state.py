"""The checks of claims about producer state: KIP-758's workload, memory, scenarios with tiered
storage, and the comparison of designs.
"""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from kraftsim.conformance.requirement import all_requirements
from kraftsim.lab.campaign.comparison import compare, rows_of, run_one
from kraftsim.lab.comparison.memory import bytes_per_producer
from kraftsim.lab.workloads.snapshot_boundary import SEGMENTS
from kraftsim.lease_pid.rules_broker import SequenceOfLease
from tools.bench import bench_leases
from tools.bench.bench_variants import DUPLICATE, KINDS, OUT_OF_ORDER, bytes_each
from tools.bench.variants.workload import WORKLOADS, run_workload
from tools.claims.checks import CLAIMS, INTEROP, check, scenario

SEED, PRODUCERS, BATCHES = 1, 1000, 50
VARIANTS = "make bench ARGS=variants"
COMPARED = "kraftsim compare --seeds 20"
GENERATION_BITS = 16
PROJECT_ROOT = Path(__file__).parents[2]
REPLAYED = re.compile(
    r"replay of all .*: (?P<seconds>[\d.]+) s, (?P<producers>\d+) producers, (?P<megabytes>\d+) MB"
)


@check(f"{VARIANTS} # 20 in flight", INTEROP)
def many_in_flight() -> dict[str, object]:
    found = _workload("20 in flight")
    return {f"{name}_20": value for name, value in found.items()}


@check(f"{VARIANTS} # answers are lost", INTEROP)
def answers_lost() -> dict[str, object]:
    return {
        f"{name}_five_in_flight": value for name, value in _workload("answers are lost").items()
    }


@check(f"{VARIANTS} # the broker starts again", INTEROP)
def broker_starts_again() -> dict[str, object]:
    return {
        f"{name}_restart": value for name, value in _workload("the broker starts again").items()
    }


@check(f"{VARIANTS} # a producer goes astray", INTEROP)
def astray() -> dict[str, object]:
    return {f"{name}_astray": value for name, value in _workload("a producer goes astray").items()}


def _workload(name: str) -> dict[str, object]:
    (chosen,) = (each for each in WORKLOADS if each.name == name)
    found: dict[str, object] = {"batches": PRODUCERS * BATCHES}
    for kind, key in zip(KINDS, ("five", "latest"), strict=True):
        run, _ = run_workload(KINDS[kind], chosen, PRODUCERS, BATCHES, SEED)
        found |= {
            f"doubled_{key}": run.doubled,
            f"lost_{key}": run.lost,
            f"without_offset_{key}": run.without_offset,
            f"said_46_{key}": run.answers[DUPLICATE],
            f"said_45_{key}": run.answers[OUT_OF_ORDER],
        }
    return found


@check(f"{VARIANTS} # memory", CLAIMS)
def memory() -> dict[str, object]:
    count = 100_000
    each: dict[str, object] = {
        f"bytes_{key}_{batches}": round(bytes_each(kind, count, batches))
        for kind, key in zip(KINDS, ("five", "latest"), strict=True)
        for batches in (1, 5)
    }
    return {"producers": count, **each}


@check("kraftsim compare # memory", CLAIMS)
def compared_memory() -> dict[str, object]:
    found = bytes_per_producer()
    return {
        "bytes_list": round(found["lease_pid: a list"]),
        "bytes_table": round(found["lease_pid: a table"]),
        "bytes_kafka": round(found["Kafka: five batches"]),
    }


@check(COMPARED, INTEROP)
def compared() -> dict[str, object]:
    found: dict[str, object] = {}
    for row in rows_of(compare(range(1, 21)).outcomes):
        key = row.system.replace("-", "_").replace(".", "_")
        found |= {
            f"{key}_{name}": row.totals[name]
            for name in ("records", "doubled", "lost", "refusals", "ids_used", "ids_taken")
        }
        found |= {f"{key}_runs_with_doubles": row.runs_with_doubles, "runs": row.runs}
    return found


@check("kraftsim compare --system lease-pid --first-seed 30 --seeds 1")
def two_renewals() -> dict[str, object]:
    outcome, _ = run_one("lease-pid", 30)
    return {"lost_in_seed_30": outcome.lost}


@check("kraftsim scenario producer_state_variants --seed 1")
def two_kinds() -> dict[str, object]:
    run = scenario("kraftsim scenario producer_state_variants --seed 1")
    return {
        "acknowledged": run.count("RecordAcknowledged"),
        "said_46": run.count("ProduceRefused", error_code=46),
    }


@check("kraftsim scenario empty_snapshot_unknown_producer_id --seed 1")
def new_id() -> dict[str, object]:
    run = scenario("kraftsim scenario empty_snapshot_unknown_producer_id --seed 1")
    return {
        "old_rule_says": run.of("ProduceRefused")[-1]["error_code"],
        "empties_of_the_story": run.count("EmptySnapshotWritten"),
        "copied_in_the_story": run.count("RemoteCopyFinished"),
        "known_after_rebuild": run.of("RebuiltFromRemote")[0]["producer_count"],
    }


@check("kraftsim scenario empty_snapshot_silent_duplicate --seed 1")
def silence() -> dict[str, object]:
    run = scenario("kraftsim scenario empty_snapshot_silent_duplicate --seed 1")
    return {"new_rule_refuses": run.count("ProduceRefused", node="broker-2", error_code=59)}


UPGRADED = "kraftsim scenario tiered_storage_after_upgrade --seed 1"
WITH_EMPTIES = f"{UPGRADED} --set kraftsim.tiering.remedy=empty-at-archive"


@check(UPGRADED)
def tiered_storage_after_upgrade() -> dict[str, object]:
    run = scenario(UPGRADED)
    failures = run.of("RemoteCopyFailed")
    assert {each["first_offset"] for each in failures} == {0}, "no segment but the oldest is tried"
    started = [each["release"] for each in run.of("NodeStarted", node="broker-1")]
    return {
        "written_by": started[0],
        "tiered_by": started[-1],
        "failures_after_upgrade": len(failures),
        "reason_after_upgrade": failures[0]["reason"],
        "copied_after_upgrade": run.count("RemoteCopyFinished"),
    }


@check(WITH_EMPTIES)
def tiered_with_empty_snapshots() -> dict[str, object]:
    run = scenario(WITH_EMPTIES)
    copied = run.of("RemoteCopyFinished")
    return {
        "closed_segments": SEGMENTS,
        "empties_after_upgrade": run.count("EmptySnapshotWritten"),
        "copied_with_empties": len(copied),
    }


@check("kraftsim scenario missing_remote_producer_snapshot --seed 1")
def replayed() -> dict[str, object]:
    run = scenario("kraftsim scenario missing_remote_producer_snapshot --seed 1")
    return {
        "read_back_bytes": run.of("RebuiltFromRemote")[0]["replayed_bytes"],
        "answered_as_duplicate": run.count("DuplicateAnswered"),
    }


@check('make bench ARGS="tiering --mebibytes 256"', CLAIMS)
def tiering() -> dict[str, object]:
    printed = subprocess.run(
        [sys.executable, "-m", "tools.bench.bench_tiering", "--mebibytes", "256"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = REPLAYED.search(printed)
    assert found is not None, printed
    return {
        "replayed_s": float(found["seconds"]),
        "replayed_producers": int(found["producers"]),
        "replayed_mb": int(found["megabytes"]),
    }


@check("python -m tools.bench.bench_leases")
def leases() -> dict[str, object]:
    drawn = {
        "next": bench_leases.collisions(GENERATION_BITS, SequenceOfLease.NEXT),
        "mark": bench_leases.collisions(GENERATION_BITS, SequenceOfLease.HIGH_WATERMARK),
    }
    found: dict[str, object] = {"drawn": 2**GENERATION_BITS}
    for key, counts in drawn.items():
        found |= {
            f"taken_{key}": counts.get(bench_leases.TAKEN, 0),
            f"duplicates_{key}": counts.get(bench_leases.REPEATED, 0),
        }
    empty, one, two = (bench_leases.snapshot_bytes(partitions, 0) for partitions in (0, 1, 2))
    found |= {
        "snapshot_bytes": empty,
        "partition_bytes": one - empty,
        "producer_bytes": bench_leases.snapshot_bytes(1, 1) - one,
    }
    assert two - one == one - empty, "each partition takes as many bytes as the first"
    return found | {
        f"bytes_of_{partitions}": bench_leases.snapshot_bytes(partitions, 10)
        for partitions in (10, 10_000)
    }


def _requirements(label: str) -> dict[str, object]:
    return {
        f"requirements_{label.replace('/', '_').replace('-', '_')}": len(
            all_requirements([label], release="")
        )
    }


for _label in ("controller/3", "transactions/2", "consumer-groups/5"):
    check(f"kraftsim list requirements # {_label}")(partial(_requirements, _label))
