"""The command line: a fast start, clear errors, and examples for each command."""

import ast
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kraftsim import __version__
from kraftsim.cli.kinds import ALL_KINDS
from kraftsim.cli.main import VERBS, kraftsim, main
from kraftsim.cli.properties import read_properties

PROJECT_ROOT = Path(__file__).parents[2]
TAKES_MARKUP = {
    "Console": "markup",
    "TextColumn": "markup",
    "Status": None,
    "Spinner": None,
    "SpinnerColumn": None,
}
"""Classes of rich that parse brackets as markup -> the argument that disables it; None: they get
Text, or nothing.
"""
REPORTING_VERBS = (
    *(
        "history",
        "scenario",
        "sweep",
        "campaign",
        "replay",
        "shrink",
        "diff",
        "inject",
        "ingest",
        "analyze",
        "report",
        "audit",
        "list",
        "doctor",
        "decode",
        "dump",
        "conformance",
    ),
    "trail",
    "watch",
)
START_SECONDS = 0.15


def run(*arguments: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process."""
    command = [sys.executable, *python, "-m", "kraftsim", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_the_command_starts_quickly() -> None:
    """The best of ten, in CPU time, which does not depend on the load of the machine."""
    took = []
    for _ in range(10):
        before = os.times()
        run("--version")
        after = os.times()
        took.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
    assert min(took) < START_SECONDS


def test_listing_commands_imports_none_of_them() -> None:
    """Nor any other package, nor modules that only some commands need."""
    program = (
        "import sys; from kraftsim.cli.main import kraftsim; kraftsim.main(['--help'], "
        "standalone_mode=False); print(*sorted(sys.modules))"
    )
    loaded = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        .stdout.splitlines()[-1]
        .split()
    )
    ours = {
        module for module in loaded if module.startswith(("kraftsim.", "protocol", "scenarios"))
    }
    own = {"kraftsim.cli", "kraftsim.cli.main", "kraftsim.cli.failure", "kraftsim.version"}
    assert ours == own
    assert not {"rich", "pyspark", "msgspec", "asyncio", "structlog"} & set(loaded)


def test_a_cluster_without_http_imports_nothing_of_it() -> None:
    """Neither `kraftsim up` and its supervisor, nor a cluster in a test, nor a proxy."""
    program = (
        "import sys; import kraftsim.cli.up, kraftsim.cli.proxy, kraftsim.cluster.supervise, "
        "kraftsim.testing.cluster; print(*sorted(sys.modules))"
    )
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    of_http = {"starlette", "uvicorn", "h11", "httpx", "anyio", "prometheus_client"}
    assert not {*of_http, "kraftsim.control"} & loaded


def test_a_node_imports_neither_spark_nor_the_terminal_renderer() -> None:
    program = (
        "import sys; import kraftsim.cli.node, kraftsim.cluster.launch; print(*sorted(sys.modules))"
    )
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert (
        not {
            "rich",
            "pyspark",
            "pandas",
            "numpy",
            "pyarrow",
            "aiokafka",
            "confluent_kafka",
            "pytest",
            "kraftsim.analysis",
        }
        & loaded
    )


def test_a_node_without_extensions_does_not_look_for_entry_points() -> None:
    """Looking for them takes 20 ms of CPU time."""
    program = (
        "import kraftsim.cli.node, kraftsim.cluster.launch, kraftsim.extensions as extensions; "
        "from kraftsim.releases.release import release; from kraftsim.lab.bugs.bug import bug; "
        "release('3.9'); bug('KAFKA-10533'); "
        "print(extensions._Process.loaded.has_read_entry_points)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_optimised_python_is_refused_with_one_line() -> None:
    """Assertions must be enabled."""
    done = run("--version", python=("-O",))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines() == [
        "Error: kraftsim does not run under `python -O`: its assertions are the safety net"
    ]


def test_the_version_is_printed() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"kraftsim, version {__version__}\n")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples(verb: str) -> None:
    shown = CliRunner().invoke(kraftsim, [verb, "--help"])
    assert shown.exit_code == 0
    assert "Example" in shown.output and f"kraftsim {verb}" in shown.output
    assert ("--json" in shown.output) == (verb in REPORTING_VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_examples_can_be_pasted_into_a_shell(verb: str) -> None:
    """Explanations of examples are comments."""
    command = kraftsim.get_command(click.Context(kraftsim), verb)
    assert command is not None
    examples = re.findall(r"^  (\S.*)$", command.epilog or "", flags=re.MULTILINE)
    assert examples and not [line for line in examples if re.search(r"\S {3,}(?!#)\S", line)]


def test_the_list_of_commands_has_the_usual_heading() -> None:
    shown = CliRunner().invoke(kraftsim, ["--help"]).output
    assert "\nCommands:\n" in shown and all(f"\n  {verb} " in shown for verb in VERBS)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["analyze", "--bogus"], "No such option '--bogus'"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["analyze", "no-such-run"], "Directory 'no-such-run' does not exist"),
        (["list", "spoons"], "'spoons' is not one of"),
        (["export", ".", "--format", "svg"], "'svg' is not one of 'perfetto', 'shiviz'"),
        (["doctor", "--require", "a-lever"], "doctor checks python"),
        (["doctor", "--node", "127.0.0.1"], "write an address as HOST:PORT"),
        (["doctor", "--node", "127.0.0.1:1"], "127.0.0.1:1 does not answer"),
        (["sweep", "all", "--seeds", "0"], "0 is not in the range x>=1"),
        (["sweep", "all", "--jobs", "0"], "0 is not in the range x>=1"),
        (["up", "--set", "broker"], "--set broker: write it as KEY=VALUE"),
        (["node", "no-such.properties"], "File 'no-such.properties' does not exist"),
    ],
)
def test_errors_exit_with_3_and_a_reason(
    arguments: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """2 would mean that an invariant is unknown or vacuous. The test below runs a process."""
    monkeypatch.setattr(sys, "argv", ["kraftsim", *arguments])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() replaces it
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 3
    assert complaint in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("process.roles=broker\n", "node.id is required"),
        ("proces.roles=broker\n", "did you mean process.roles"),
        ("process.roles=broker\nnode.id=minus one\n", "node.id"),
    ],
)
def test_a_node_with_bad_configs_prints_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "node.properties"
    file.write_text(text)
    done = run("node", str(file))
    assert done.returncode == 3
    assert complaint in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_list_prints_one_entry_a_line(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    shown = CliRunner().invoke(kraftsim, ["list", kind, "--json", str(file)])
    assert shown.exit_code == 0, shown.output
    rows = json.loads(file.read_text())
    assert len(shown.output.splitlines()) == len(rows) > 0
    assert all(row["name"] and row["about"] for row in rows)


def test_doctor_reports_present_and_missing_tools(tmp_path: Path) -> None:
    done = run("doctor", "--disk", str(tmp_path), "--json", "-")
    found = {row["name"]: row for row in json.loads(done.stdout)}
    assert {"python", "java", "maven", "go", "tshark", "uvloop", "ports", "disk"} <= set(found)
    assert found["python"]["found"] and found["uvloop"]["found"] and found["disk"]["found"]
    assert "durable" in found["disk"]["what"]
    assert done.returncode == 0


def test_doctor_reports_missing_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert run("doctor", "--require", "java").returncode == 3
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    assert run("doctor", "--require", "java").returncode == 3
    old.write_text("#!/bin/sh\necho 'openjdk version \"21.0.8\"' >&2\n")
    assert run("doctor", "--require", "java").returncode == 0


def test_rich_output_keeps_text_in_brackets() -> None:
    """File names, package extras and messages of libraries contain brackets; rich drops them if it
    parses markup.
    """
    found = []
    for file in (
        *sorted((PROJECT_ROOT / "kraftsim").rglob("*.py")),
        *sorted((PROJECT_ROOT / "demo").rglob("*.py")),
    ):
        text = file.read_text()
        # Most files name none of the classes, and need not be parsed.
        tree = ast.parse(text if any(name in text for name in TAKES_MARKUP) else "")
        for call in ast.walk(tree):
            if (
                not isinstance(call, ast.Call)
                or not isinstance(call.func, ast.Name)
                or call.func.id not in TAKES_MARKUP
            ):
                continue
            name = call.func.id
            given = {each.arg: each.value for each in call.keywords}
            value = given.get(TAKES_MARKUP[name] or "")
            is_off = isinstance(value, ast.Constant) and value.value is False
            texts = [
                *call.args,
                *(value for key, value in given.items() if key in ("text", "finished_text")),
            ]
            has_text_only = all(
                isinstance(each, ast.Call)
                and isinstance(each.func, ast.Name)
                and each.func.id == "Text"
                for each in texts
            )
            if not (is_off if TAKES_MARKUP[name] else has_text_only):
                found.append(f"{file.relative_to(PROJECT_ROOT)}:{call.lineno} {name}")
        assert "from_markup" not in text and ".print_json(" not in text, file
    assert not found, (
        "pass markup=False to Console and TextColumn, and Text to classes without that argument"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\nc: 3\nd 4\ne\n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}),
        ("# no\n! no\n\n  a=1  \n", {"a": "1  "}),
        ("a=1,\\\n   2,\\\n   3\n", {"a": "1,2,3"}),
        ("path=C:\\\\logs\nk\\=ey=v\\u0041l\n", {"path": "C:\\logs", "k=ey": "vAl"}),
        ("a=1\na=2\n", {"a": "2"}),
        ("listeners=PLAINTEXT://127.0.0.1:9092\n", {"listeners": "PLAINTEXT://127.0.0.1:9092"}),
    ],
)
def test_property_files_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    """java.util.Properties.load, as far as Kafka's property files use it."""
    assert read_properties(text) == expected


@pytest.mark.parametrize(
    ("variable", "value"), [("KRAFTSIM_LOG_LEVEL", "loud"), ("KRAFTSIM_LOG_FORMAT", "yaml")]
)
def test_an_unknown_log_level_or_format_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """`zookeeper` and `lease` have no option for it; the environment variable applies there too."""
    monkeypatch.setenv(variable, value)
    done = run("zookeeper", "--data", str(tmp_path / "zookeeper"))
    assert done.returncode == 3
    assert [
        line for line in done.stderr.splitlines() if "Error" in line
    ] == done.stderr.splitlines()
    assert f"{variable}={value}: set it to one of" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "requirements"],
        ["list", "scenarios", "--long"],
        ["doctor"],
        ["--help"],
        ["up", "--help"],
    ],
)
def test_a_closed_output_pipe_is_not_reported_as_a_violation(arguments: list[str]) -> None:
    """As in `kraftsim analyze RUN | head -1`."""
    running = subprocess.Popen(
        [sys.executable, "-m", "kraftsim", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None and running.stderr is not None
    running.stdout.close()
    assert (running.wait(), running.stderr.read()) == (141, b"")
    running.stderr.close()
