"""Runs and datasets in a real S3 server, S3Proxy from Maven, by the command line."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.generated_run import generated_run

pytestmark = pytest.mark.interop
SECONDS = 240
BY_RUN = "SELECT run, count(*) AS events FROM events GROUP BY run ORDER BY run"


class Shell:
    """The command line, in an environment that leads to a server."""

    def __init__(self, endpoint: str, key: str, secret: str) -> None:
        self.secret = secret
        self.environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def __call__(self, *words: str, **changed: str) -> "subprocess.CompletedProcess[str]":
        """Run a verb; the secret is never printed."""
        program = "from kraftsim.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            env={**self.environment, **changed},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert self.secret not in done.stdout + done.stderr
        return done

    def rows(self, query: str, place: str) -> list[dict[str, object]]:
        """Return the rows of a query."""
        done = self("sql", query, place, "--format", "json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[str, Shell]]:
    """Yield the name of a bucket, and the command line that reaches it."""
    pytest.importorskip("boto3")
    from tests.tiered_storage.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server

    with S3Server() as server:
        yield BUCKET, Shell(server.settings["s3.endpoint.url"], ACCESS_KEY, SECRET_KEY)


def objects(shell: Shell) -> Any:
    """Return the buckets of the server, as the tools of a user see them."""
    import boto3
    from botocore.config import Config

    return boto3.resource(
        "s3",
        endpoint_url=shell.environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=shell.environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=shell.secret,
        region_name="us-east-1",
        config=Config(
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


def uploaded(run: Path, address: str, shell: Shell) -> None:
    """Put the files of a run into the server."""
    bucket, _, prefix = address.removeprefix("s3a://").partition("/")
    for path in sorted(run.rglob("*")):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(run).as_posix()}"
            objects(shell).Object(bucket, key).put(Body=path.read_bytes())


def verdicts(path: Path) -> object:
    """Return what an analysis says, but for where its files are."""
    found = json.loads(path.read_text())
    return [found[name] for name in ("verdict", "judgements", "transactions", "details")]


def test_a_run_is_ingested_queried_and_analysed_in_s3(
    tmp_path: Path, bucket: tuple[str, Shell]
) -> None:
    """From logs in S3 to a dataset in S3, on both engines, with the rows of local files."""
    name, kraftsim = bucket
    for number in range(2):
        generated_run(seed=number, seconds=0.5).write(tmp_path / f"run-{number}")
    odd = tmp_path / "run-0" / "events" / "odd.1.jsonl"
    odd.write_bytes(b"[" * 100_000 + b"\nno event\n{}\n" + b'{"run":')
    logs = f"s3a://{name}/logs/run-0"
    uploaded(tmp_path / "run-0", logs, kraftsim)
    here, there = str(tmp_path / "all"), f"s3a://{name}/all"
    runs = [str(tmp_path / f"run-{number}") for number in range(2)]
    local = kraftsim("ingest", *runs, "--dataset", here)
    remote = kraftsim("ingest", logs, runs[1], "--dataset", there)
    assert remote.returncode == 0, remote.stderr
    assert remote.stdout.replace(there, here) == local.stdout
    assert "odd.1.jsonl: 3 lines are no events" in remote.stdout
    assert "odd.1.jsonl: a torn last line of 7 bytes" in remote.stdout
    expected = kraftsim.rows(BY_RUN, here)
    assert kraftsim.rows(BY_RUN, there.replace("s3a:", "s3:")) == expected and len(expected) == 2
    assert "2 runs: 1" in kraftsim("dataset", "compact", there).stdout
    assert kraftsim.rows(BY_RUN, there) == expected
    for engine, place in (("duckdb", here), ("duckdb", there), ("spark", there)):
        to = tmp_path / f"{engine}-{place == here}.json"
        done = kraftsim("analyze", f"{place}/run=run-1", "--engine", engine, "--json", str(to))
        assert done.returncode in (0, 1), done.stderr
    found = [verdicts(path) for path in sorted(tmp_path.glob("*-*.json"))]
    assert len(found) == 3 and found[0] == found[1] == found[2]
    assert "report: s3a://" in kraftsim("report", f"{there}/run=run-1").stdout
    by_spark = kraftsim("ingest", logs, "--dataset", f"s3a://{name}/spark", "--master", "local[2]")
    assert by_spark.returncode == 0, by_spark.stderr
    assert kraftsim.rows(BY_RUN, f"s3a://{name}/spark") == expected[:1]
    assert "removed: run-0" in kraftsim("dataset", "remove", there, "run-0").stdout
    assert "removed 1 runs: run-1" in kraftsim("dataset", "expire", there, "--keep", "0").stdout
    assert "no runs" in kraftsim("dataset", "list", there).stdout


def test_what_cannot_be_reached_is_one_line(tmp_path: Path, bucket: tuple[str, Shell]) -> None:
    """Exit code 3 without a traceback, for whatever a user may have got wrong."""
    name, kraftsim = bucket
    generated_run(seconds=0.05).write(tmp_path / "run")
    run, there = str(tmp_path / "run"), f"s3a://{name}/some"
    assert kraftsim("ingest", run, "--dataset", there).returncode == 0
    wrong = {"AWS_SECRET_ACCESS_KEY": "wrong"}
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    for words, changed, said in (
        (("ingest", run, "--dataset", "s3a://absent/all"), {}, "no such bucket"),
        (("dataset", "list", "s3a://absent/all"), {}, "no such bucket"),
        (("ingest", run, "--dataset", there), wrong, "access was denied"),
        (("sql", "SELECT 1", there), wrong, "access was denied"),
        (("analyze", f"{there}/run=run"), wrong, "access was denied"),
        (("dataset", "list", there), nowhere, "no connection"),
        (("ingest", f"s3a://{name}/absent"), {}, "there is nothing at"),
        (
            ("ingest", run, "--dataset", there, "--conf", "spark.hadoop.fs.s3a.secret.key=wrong"),
            {},
            "access was denied",
        ),
    ):
        failed = kraftsim(*words, **changed)
        assert failed.returncode == 3 and said in failed.stderr, (words, failed.stderr)
        assert len(failed.stderr.splitlines()) <= 4 and "Traceback" not in failed.stderr


def test_no_secret_is_stored(tmp_path: Path, bucket: tuple[str, Shell]) -> None:
    """Manifests, analyses and reports have addresses, and addresses have no credentials."""
    name, kraftsim = bucket
    generated_run(seconds=0.05).write(tmp_path / "run")
    place = f"s3a://{name}/kept"
    uploaded(tmp_path / "run", place, kraftsim)
    assert kraftsim("analyze", place, "--engine", "duckdb").returncode in (0, 1, 2)
    assert kraftsim("report", place).returncode == 0
    stored = {
        each.key: each.get()["Body"].read()
        for each in objects(kraftsim).Bucket(name).objects.filter(Prefix="kept/")
    }
    assert {"kept/analysis.json", "kept/report.html"} <= set(stored)
    assert any(key.startswith("kept/events.parquet/_runs/") for key in stored)
    for key, content in stored.items():
        assert kraftsim.secret.encode() not in content, key
