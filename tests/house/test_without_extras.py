"""A plain installation of kraftsim: commands that need an extra print one line, and never exit with
the code of a violated invariant.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from kraftsim.cli import main
from kraftsim.cli.failure import EXTRA_OF_PACKAGE, FAILED, missing_extra
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from tests.house.hidden_packages import environment_without_extras

PROJECT_ROOT = Path(__file__).parents[2]
OF_DEPENDENCIES = {"py4j": "pyspark", "botocore": "boto3"}
"""Dependencies of the packages of extras that are imported by name."""
SCENARIO = "producer_ids_survive_failover"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment without the packages of extras."""
    return environment_without_extras(tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (("ingest", "RUN"), "numpy", "analysis"),
        (("analyze", "RUN"), "pyarrow", "analysis"),
        (("report", "RUN"), "pyarrow", "analysis"),
        (("audit", "RUN"), "pyarrow", "analysis"),
        (("export", "RUN", "--format", "perfetto"), "pyarrow", "analysis"),
        (("trail", "RUN"), "pyarrow", "analysis"),
        (("sweep", SCENARIO, "--seeds", "1", "--spark", "local[1]"), "pyarrow", "analysis"),
        (
            ("scenario", SCENARIO, "--mode", "processes", "--out", "RUN/played"),
            "confluent_kafka",
            "clients",
        ),
        (("node", "RUN/s3.properties"), "boto3", "tiered"),
        (("up", "--http", "0", "--data", "RUN/up"), "starlette", "http"),
    ],
)
def test_a_missing_extra_prints_one_line_and_exits_with_3(
    arguments: tuple[str, ...], package: str, extra: str, bare: dict[str, str], tmp_path: Path
) -> None:
    _write_node_with_s3(tmp_path)
    command = [each.replace("RUN", str(tmp_path)) for each in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "kraftsim", *command],
        capture_output=True,
        text=True,
        check=False,
        env=bare,
    )
    said = [line for line in done.stderr.splitlines() if "event=starting" not in line]
    assert (done.returncode, said) == (
        FAILED,
        [
            (
                f"Error: this needs the Python package {package}, which is not installed: pip "
                f"install 'kraftsim[{extra}]'"
            )
        ],
    ), done.stdout


def _write_node_with_s3(directory: Path) -> None:
    spec = ClusterSpec(
        brokers=1,
        port=free_port_range(1),
        settings={
            "log.dirs": str(directory / "data"),
            "remote.log.storage.system.enable": "true",
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "remote.log.storage.manager.class.name": "kraftsim.s3",
            "rsm.config.s3.bucket": "segments",
        },
    )
    text = "".join(f"{key}={value}\n" for key, value in spec.node("broker-1").properties.items())
    (directory / "s3.properties").write_text(text)


def test_doctor_names_the_extra_in_full(bare: dict[str, str]) -> None:
    """rich parses brackets as markup and drops them, and wraps lines at the terminal width."""
    done = subprocess.run(
        [sys.executable, "-m", "kraftsim", "doctor", "--require", "pyspark"],
        capture_output=True,
        text=True,
        check=False,
        env={**bare, "COLUMNS": "30"},
    )
    assert done.returncode == FAILED
    assert "pyspark: pip install 'kraftsim[analysis]'" in done.stdout.splitlines()


def test_every_package_of_an_extra_is_listed() -> None:
    """Extras for users; `dev` and others are for contributors, and no command imports their
    packages.
    """
    extras = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {
        re.split(r"[^A-Za-z0-9_-]", each)[0].replace("-", "_"): extra
        for extra in ("analysis", "tiered", "clients", "http", "java")
        for each in extras[extra]
    }
    assert {
        package: extra
        for package, extra in EXTRA_OF_PACKAGE.items()
        if package not in OF_DEPENDENCIES
    } == named
    assert all(
        EXTRA_OF_PACKAGE[package] == EXTRA_OF_PACKAGE[of] for package, of in OF_DEPENDENCIES.items()
    )


def test_a_missing_package_is_found_in_exception_groups_and_causes() -> None:
    """asyncio puts errors into exception groups, pyspark raises its own error from the
    ImportError.
    """
    missing = ModuleNotFoundError("No module named 'pandas'", name="pandas.core")
    of_pyspark = ImportError("[PACKAGE_NOT_INSTALLED]")
    of_pyspark.__cause__ = missing
    group = ExceptionGroup("tasks", [ValueError("other"), of_pyspark])
    group.__cause__ = group.exceptions[0]
    assert "kraftsim[analysis]" in (missing_extra(group) or "")
    assert (
        missing_extra(
            ModuleNotFoundError("No module named 'kraftsim.nothing'", name="kraftsim.nothing")
        )
        is None
    )
    assert missing_extra(ValueError("other")) is None


def test_an_unexpected_error_exits_with_3_and_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python itself exits with 1, which scripts would interpret as a violated invariant."""

    @click.command()
    def doctor() -> None:
        raise ZeroDivisionError("unexpected")

    monkeypatch.setattr(main.VerbsOnDemand, "get_command", lambda *_: doctor)
    monkeypatch.setattr(sys, "argv", ["kraftsim", "doctor"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == FAILED
    assert "ZeroDivisionError: unexpected" in capsys.readouterr().err
