"""Plays docker-compose.yml without containers: every service gets a loopback address and a directory instead of a container.

The commands, settings and health checks are the file's own. Only names are mapped, as a container engine would map them: a service's host name to its
address, 0.0.0.0 and localhost to the address of the service itself, a volume's path to a directory.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HOUSE = Path(__file__).parents[2]
COMPOSE_FILE = HOUSE / "docker-compose.yml"
IMAGE_HOME = "/var/lib/kraftsim"
STOP_SECONDS = 20.0


def services(profile: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the services of a profile, or those without one, in an order in which each follows what it depends on."""
    declared = yaml.safe_load(COMPOSE_FILE.read_text())["services"]
    wanted = [] if profile is None else [profile]
    chosen = {name: service for name, service in declared.items() if service.get("profiles", []) == wanted}
    ordered: dict[str, dict[str, Any]] = {}
    while len(ordered) < len(chosen):
        ready = [name for name in chosen if name not in ordered and set(chosen[name].get("depends_on", {})) <= set(ordered)]
        assert ready, "services depend on each other in a circle"
        ordered.update({name: chosen[name] for name in ready})
    return ordered


@dataclass(slots=True)
class Containers:
    """The running services."""

    directory: Path
    services: dict[str, dict[str, Any]]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def address(self, service: str) -> str:
        """Return the loopback address that stands for a service's container."""
        return f"127.0.77.{1 + list(self.services).index(service)}"

    def mapped(self, text: str, service: str) -> str:
        """Return a text of the compose file with its names mapped for a service."""
        for other in self.services:
            text = text.replace(f"//{other}:", f"//{self.address(other)}:").replace(f"@{other}:", f"@{self.address(other)}:")
        for here in ("0.0.0.0", "localhost"):
            text = text.replace(here, self.address(service))
        return text.replace(IMAGE_HOME, str(self.directory))

    def start(self, service: str) -> None:
        """Start a service once what it depends on is as healthy as it asks for."""
        declared = self.services[service]
        for other, condition in declared.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            self.wait_until_healthy(other)
        log = open(self.directory / f"{service}.log", "wb")  # noqa: SIM115  (it belongs to the process)
        command = [self.mapped(word, service) for word in declared["command"]]
        self.processes[service] = subprocess.Popen(
            command, cwd=self.directory, env=self.environment(service), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        log.close()

    def environment(self, service: str) -> dict[str, str]:
        """Return the environment of a service: what the file declares, and where the programs of the image are."""
        declared = {key: self.mapped(str(value), service) for key, value in self.services[service].get("environment", {}).items()}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "CLUSTER_ID", "PYTHON"))}
        return {**inherited, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **declared}

    def is_healthy(self, service: str) -> bool:
        """Run the health check of a service once."""
        kind, *command = self.services[service]["healthcheck"]["test"]
        assert kind == "CMD", "health checks run without a shell"
        words = [self.mapped(word, service) for word in command]
        done = subprocess.run(words, env=self.environment(service), cwd=self.directory, capture_output=True, check=False, timeout=30)
        return done.returncode == 0

    def wait_until_healthy(self, service: str) -> None:
        """Run the health check as often as the file allows, and a little faster."""
        check = self.services[service]["healthcheck"]
        seconds = float(str(check["interval"]).removesuffix("s")) * int(check["retries"])
        give_up_at = time.monotonic() + seconds
        while not self.is_healthy(service):
            said = (self.directory / f"{service}.log").read_text(errors="replace")
            assert self.processes[service].poll() is None, f"{service} ended with {self.processes[service].returncode}: {said}"
            assert time.monotonic() < give_up_at, f"{service} is not healthy after {seconds:g} s: {said}"
            time.sleep(0.1)

    def stop(self) -> dict[str, int]:
        """Stop all services as an engine does, the dependent ones first; return their exit codes."""
        codes = {}
        for service in reversed(list(self.processes)):
            process = self.processes[service]
            process.terminate()
            try:
                codes[service] = process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[service] = process.wait()
        self.processes.clear()
        return codes


@contextmanager
def composed(directory: Path) -> Iterator[Containers]:
    """Start every service without a profile, wait until all are healthy, and stop them afterwards."""
    (directory / "run").mkdir(parents=True)
    containers = Containers(directory, services())
    try:
        for service in containers.services:
            containers.start(service)
        for service in containers.services:
            containers.wait_until_healthy(service)
        yield containers
    finally:
        containers.stop()
