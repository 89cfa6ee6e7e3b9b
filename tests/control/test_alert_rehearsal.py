"""A rehearsal: a broker of a running cluster is killed, Prometheus' own evaluation fires the alert
that people have for it, and it is quiet again when the broker is back.

The samples are those that /metrics gave while it happened; promtool evaluates the rules of
docker/prometheus on them.
"""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import kraftsim
from kraftsim.control.client import ControlClient
from tests.control.test_metrics import ALERTS, SCRAPE

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "promtool"
MODULE = "github.com/prometheus/prometheus"
VERSION = "v0.53.2"
BUILD_SECONDS = 1500
STEP_SECONDS = 2
SAMPLES = 4
WAIT_SECONDS = 30.0
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
Series = dict[str, list[float | None]]


def promtool() -> Path:
    """Return promtool, built once from its module; skip without Go."""
    found = shutil.which("promtool")
    if found is not None:
        return Path(found)
    program = BUILD / "promtool"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        pytest.skip("promtool is built from its Go module, and there is no go on the search path")
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "go.mod").write_text(f"module rules\n\ngo 1.22\n\nrequire {MODULE} {VERSION}\n")
    (BUILD / "tools.go").write_text(
        f'//go:build tools\n\npackage rules\n\nimport _ "{MODULE}/cmd/promtool"\n'
    )
    subprocess.run(
        [go, "build", "-mod=mod", "-o", str(program), f"{MODULE}/cmd/promtool"],
        cwd=BUILD,
        env={**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"},
        check=True,
        timeout=BUILD_SECONDS,
    )
    return program


def checked(*arguments: str | Path) -> str:
    """Run promtool; its failure is the test's."""
    done = subprocess.run(
        [promtool(), *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_accepts_rules_settings_and_metrics(tmp_path: Path) -> None:
    assert "9 rules found" in checked("check", "rules", ALERTS)
    for file in (ALERTS, SCRAPE):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "token").write_text("secret")
    checked("check", "config", tmp_path / SCRAPE.name)


class Rehearsal:
    """Samples of all series, taken when a test says so, `STEP_SECONDS` apart in the rules' time."""

    def __init__(self, client: ControlClient) -> None:
        self._url = f"{client.url}/metrics"
        self._headers = {"Authorization": f"Bearer {client.token}"}
        self.series: Series = {}
        self.taken = 0

    def under_replicated(self) -> float:
        """Scrape once; return how many partitions are under-replicated, and keep nothing."""
        return sum(
            sample.value
            for family in self._scrape()
            for sample in family.samples
            if sample.name == UNDER_REPLICATED
        )

    def take(self, times: int) -> None:
        """Scrape once, and let that be the values of the next steps."""
        found = {
            f"{sample.name}{{{labels_text(sample.labels)}}}": sample.value
            for family in self._scrape()
            for sample in family.samples
        }
        for name in found:
            self.series.setdefault(name, [None] * self.taken)
        for name, values in self.series.items():
            values += [found.get(name)] * times
        self.taken += times

    def _scrape(self) -> list[Metric]:
        answer = httpx.get(self._url, headers=self._headers, timeout=10)
        assert answer.status_code == 200, answer.text
        return list(text_string_to_metric_families(answer.text))


def labels_text(labels: dict[str, str]) -> str:
    """Return labels as PromQL writes them."""
    return ", ".join(
        '{}="{}"'.format(key, value.replace("\\", "\\\\").replace('"', '\\"'))
        for key, value in sorted(labels.items())
    )


async def test_a_killed_broker_fires_the_alert_for_under_replicated_partitions(
    tmp_path: Path,
) -> None:
    settings = {"broker.session.timeout.ms": "2000"}
    with kraftsim.Cluster(brokers=3, settings=settings, http=True) as cluster:
        cluster.create_topic(partitions=4, replicas=3)
        rehearsal = Rehearsal(cluster.serve_http())
        await until(rehearsal, is_under=False)
        rehearsal.take(SAMPLES)
        await cluster.aio.kill("broker-2")
        await until(rehearsal, is_under=True)
        rehearsal.take(SAMPLES)
        under = sum(
            values[-1] or 0
            for name, values in rehearsal.series.items()
            if name.startswith(UNDER_REPLICATED)
        )
        await cluster.aio.restart("broker-2")
        await until(rehearsal, is_under=False)
        rehearsal.take(SAMPLES)
    assert under >= 4
    killed_at, restarted_at = SAMPLES * STEP_SECONDS, 2 * SAMPLES * STEP_SECONDS
    alert = "UnderReplicatedPartitions"
    checks = [
        alert_check(alert, killed_at - STEP_SECONDS, []),
        alert_check(alert, killed_at + STEP_SECONDS, []),  # pending: `for` is five seconds
        alert_check(
            alert,
            restarted_at - STEP_SECONDS + 1,
            [
                {
                    "exp_labels": {"severity": "warning"},
                    "exp_annotations": {
                        "summary": f"{under:g} partitions have fewer in-sync replicas than replicas"
                    },
                }
            ],
        ),
        alert_check(alert, restarted_at + 2 * STEP_SECONDS, []),
        alert_check("InvariantViolated", restarted_at, []),
        alert_check("NotOneActiveController", restarted_at, []),
    ]
    file = tmp_path / "rehearsal.yml"
    file.write_text(rules_test(rehearsal.series, checks))
    (tmp_path / ALERTS.name).write_text(ALERTS.read_text())
    checked("test", "rules", file)
    missed = [alert_check(alert, restarted_at - STEP_SECONDS + 1, [])]
    file.write_text(rules_test(rehearsal.series, missed))
    with pytest.raises(AssertionError, match="FAILED"):  # the evaluation can fail
        checked("test", "rules", file)


async def until(rehearsal: Rehearsal, *, is_under: bool) -> None:
    """Wait until partitions are under-replicated, or none is."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (await asyncio.to_thread(rehearsal.under_replicated) > 0) is not is_under:
            await asyncio.sleep(0.3)


def alert_check(alert: str, at_seconds: int, expected: list[object]) -> dict[str, object]:
    """Return what promtool checks at a time."""
    return {"eval_time": f"{at_seconds}s", "alertname": alert, "exp_alerts": expected}


def rules_test(series: Series, checks: list[dict[str, object]]) -> str:
    """Return a file for `promtool test rules`."""
    return yaml.safe_dump(
        {
            "rule_files": [ALERTS.name],
            "evaluation_interval": f"{STEP_SECONDS // 2}s",
            "tests": [
                {
                    "interval": f"{STEP_SECONDS}s",
                    "input_series": [
                        {
                            "series": name,
                            "values": " ".join(
                                "_" if each is None else f"{each:g}" for each in values
                            ),
                        }
                        for name, values in sorted(series.items())
                    ],
                    "alert_rule_test": checks,
                }
            ],
        },
        width=1_000_000,
    )
