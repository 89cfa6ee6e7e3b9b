"""Parses docker-compose.yml, as far as the file uses the Compose Specification: variables with
defaults, services, volumes, ports, health checks.

Only supported keys may be in the file; anything else is a failure, so that the rehearsal cannot
ignore anything.
Source: the Compose Specification.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PROJECT_ROOT = Path(__file__).parents[2]
FILE = PROJECT_ROOT / "docker-compose.yml"
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")
SERVICE_KEYS = {
    *(
        "image",
        "build",
        "command",
        "entrypoint",
        "environment",
        "ports",
        "volumes",
        "healthcheck",
        "depends_on",
        "profiles",
        "stop_grace_period",
    ),
}
HEALTH_KEYS = {"test", "interval", "timeout", "retries"}
CONDITIONS = {"service_healthy", "service_completed_successfully"}


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthCheck:
    """The health-check command of a service, and its time limits."""

    command: tuple[str, ...]
    interval_seconds: float
    timeout_seconds: float
    retries: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A port of this machine that is published for a port of a service."""

    host: str
    port: int
    target_port: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """One service; `entrypoint` is None if that of the image is used."""

    name: str
    target: str
    entrypoint: tuple[str, ...] | None
    command: tuple[str, ...]
    environment: Mapping[str, str]
    published: tuple[Published, ...]
    volumes: Mapping[str, str]
    """Name of a volume -> its path in the container."""
    health: HealthCheck | None
    depends_on: Mapping[str, str]
    profiles: tuple[str, ...]
    stop_seconds: float


def composition(**variables: str) -> dict[str, Service]:
    """Return the services in the order of the file; `variables` are set as if in the environment of
    the user.
    """
    whole = yaml.safe_load(FILE.read_text())
    assert {key for key in whole if not key.startswith("x-")} == {"name", "services", "volumes"}
    declared = _filled(whole["services"], variables)
    services = {name: _service(name, each) for name, each in declared.items()}
    for service in services.values():
        assert set(service.volumes) <= set(whole["volumes"]), (
            f"{service.name} uses a volume that is not declared"
        )
        assert set(service.depends_on) <= set(services), (
            f"{service.name} depends on an undefined service"
        )
    assert all(options is None for options in whole["volumes"].values())
    return services


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    """Substitute variables."""
    match value:
        case dict():
            return {key: _filled(each, variables) for key, each in value.items()}
        case list():
            return [_filled(each, variables) for each in value]
        case str():
            filled = VARIABLE.sub(lambda found: variables.get(found[1], found[2]), value)
            assert "$" not in filled, f"{value}: write a variable as ${{NAME:-default}}"
            return filled
        case _:
            return value


def _service(name: str, declared: Mapping[str, Any]) -> Service:
    unknown = set(declared) - SERVICE_KEYS
    assert not unknown, f"{name}: the rehearsal does not know {sorted(unknown)}"
    assert set(declared["build"]) == {"context", "target"} and declared["build"]["context"] == "."
    assert declared["image"] == f"kraftsim:{declared['build']['target']}"
    assert all(isinstance(value, str) for value in declared.get("environment", {}).values()), (
        f"{name}: numbers in environment need quotes"
    )
    depends_on = {
        other: each["condition"] for other, each in declared.get("depends_on", {}).items()
    }
    assert set(depends_on.values()) <= CONDITIONS
    return Service(
        name=name,
        target=declared["build"]["target"],
        entrypoint=tuple(declared["entrypoint"]) if "entrypoint" in declared else None,
        command=tuple(declared["command"]),
        environment=declared.get("environment", {}),
        published=tuple(_published(text) for text in declared.get("ports", [])),
        volumes=dict(text.split(":") for text in declared.get("volumes", [])),
        health=_health(declared["healthcheck"]) if "healthcheck" in declared else None,
        depends_on=depends_on,
        profiles=tuple(declared.get("profiles", [])),
        stop_seconds=_seconds(declared.get("stop_grace_period", "10s")),
    )


def _published(text: str) -> Published:
    host, port, target_port = text.split(":")
    return Published(host=host, port=int(port), target_port=int(target_port))


def _health(declared: Mapping[str, Any]) -> HealthCheck:
    assert set(declared) == HEALTH_KEYS
    kind, *command = declared["test"]
    assert kind == "CMD"
    return HealthCheck(
        command=tuple(command),
        interval_seconds=_seconds(declared["interval"]),
        timeout_seconds=_seconds(declared["timeout"]),
        retries=declared["retries"],
    )


def _seconds(text: str) -> float:
    assert re.fullmatch(r"\d+s", text), text
    return float(text.removesuffix("s"))
