"""Runs docker-compose.yml without containers: every service is a process with its own loopback
address and directories.

The commands, the environment and the health checks are those of the file. Three things are mapped,
as by a container engine: the host name of a service to its address, a volume to a directory, and a
published port to a relay to the service. Programs come from the image built by the steps of the
Dockerfile.
"""

import asyncio
import os
import re
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.compose.composition import Published, Service
from tests.compose.dockerfile import Image

NETWORK = f"127.{1 + os.getpid() % 200}.{os.getpid() // 200 % 250}"
"""The network of this process: another rehearsal on the same machine has another one."""
FIRST_ADDRESS = 11
PATIENCE_SECONDS = 0.1
"""Health checks are repeated at a shorter interval than in the file, but with the same number of
retries.
"""


class Rehearsal:
    """The running services, each with an address that no other rehearsal of this process has."""

    _next_address = FIRST_ADDRESS

    def __init__(self, services: Mapping[str, Service], image: Image, directory: Path) -> None:
        self.services = services
        self.directory = directory
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._image = image
        self._first_address = Rehearsal._next_address
        Rehearsal._next_address += len(services)
        names = "|".join(map(re.escape, services))
        self._names = re.compile(
            rf"(?:(?<=^)|(?<=//)|(?<=@))({names})(?=:\d)|(?<=Address=)({names})$|(?<=')({names})(?=')"
        )

    def address(self, name: str) -> str:
        """Return the address for the host name of a service."""
        return f"{NETWORK}.{self._first_address + list(self.services).index(name)}"

    def volume(self, name: str) -> Path:
        """Return the directory for a volume."""
        return self.directory / "volumes" / name

    def log(self, name: str) -> str:
        """Return the output of a service."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def local(self, service: Service, text: str) -> str:
        """Replace host names by addresses, and volumes and the image by directories."""
        text = self._names.sub(lambda found: self.address(found[0]), text)
        for volume, place in service.volumes.items():
            text = text.replace(place, str(self.volume(volume)))
        return self._image.local(text)

    def start(self, name: str) -> None:
        """Start a service; its dependencies must meet their conditions."""
        service = self.services[name]
        for other, condition in service.depends_on.items():
            assert condition == "service_healthy"
            self.wait_until_healthy(other)
        with open(self.directory / f"{name}.log", "ab") as log:
            words = [self.local(service, word) for word in self.words(service)]
            where, environment = self._directory(service), self.environment(service)
            self.processes[name] = subprocess.Popen(
                words,
                cwd=where,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, name: str, *, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run a service that exits by itself."""
        service = self.services[name]
        words = [self.local(service, word) for word in self.words(service)]
        where, environment = self._directory(service), self.environment(service)
        return subprocess.run(
            words,
            cwd=where,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def words(self, service: Service) -> tuple[str, ...]:
        """Return the command of a service: the entry point, its own or that of the image, and its
        arguments.
        """
        return (
            *(self._image.entrypoint if service.entrypoint is None else service.entrypoint),
            *(service.command or self._image.default_command),
        )

    def environment(self, service: Service) -> dict[str, str]:
        """Return the environment of the process of a service."""
        return {
            **self._image.process_environment(),
            **{key: self.local(service, value) for key, value in service.environment.items()},
        }

    def is_healthy(self, name: str) -> bool:
        """Run the health check of a service once."""
        service = self.services[name]
        assert service.health is not None, f"{name} has a health check"
        words = [self.local(service, word) for word in service.health.command]
        try:
            done = subprocess.run(
                words,
                env=self.environment(service),
                capture_output=True,
                timeout=service.health.timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def wait_until_healthy(self, name: str) -> None:
        """Repeat the health check for the configured number of retries."""
        health = self.services[name].health
        assert health is not None, f"{name} has a health check"
        for _ in range(health.retries):
            if self.is_healthy(name):
                return
            assert self.processes[name].poll() is None, f"{name} ended:\n{self.log(name)}"
            time.sleep(PATIENCE_SECONDS)
        raise AssertionError(f"{name} does not become healthy:\n{self.log(name)}")

    def start_all(self) -> None:
        """Start every service, then wait until all are healthy."""
        for name in self.services:
            self.start(name)
        for name in self.services:
            self.wait_until_healthy(name)

    def stop_all(self) -> dict[str, int]:
        """Stop every service as an engine does, dependent services first; return the exit codes."""
        codes: dict[str, int] = {}
        while self.processes:
            needed = {other for name in self.processes for other in self.services[name].depends_on}
            leaving = [name for name in self.processes if name not in needed]
            for name in leaving:
                self.processes[name].terminate()
            for name in leaving:
                codes[name] = self._wait_for_end(name)
        return codes

    def _wait_for_end(self, name: str) -> int:
        process = self.processes.pop(name)
        try:
            return process.wait(self.services[name].stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _directory(self, service: Service) -> Path:
        """Return the working directory of a service: that of the image, with the volumes below
        it.
        """
        home = self.directory / "homes" / service.name
        home.mkdir(parents=True, exist_ok=True)
        for volume, place in service.volumes.items():
            self.volume(volume).mkdir(parents=True, exist_ok=True)
            link = home / Path(self._image.local(place)).relative_to(self._image.directory)
            if not link.is_symlink():
                link.symlink_to(self.volume(volume))
        return home


@contextmanager
def rehearsal(
    services: Mapping[str, Service], image: Image, directory: Path
) -> Iterator[Rehearsal]:
    """Start services, publish their ports, and stop them at the end."""
    running = Rehearsal(services, image, directory)
    ports = [
        (each, running.address(service.name))
        for service in services.values()
        for each in service.published
    ]
    with published(ports):
        try:
            running.start_all()
            yield running
        finally:
            running.stop_all()


@contextmanager
def published(ports: list[tuple[Published, str]]) -> Iterator[None]:
    """Forward each published port to its service, in a separate thread and event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="published ports", daemon=True)
    thread.start()
    servers = [
        asyncio.run_coroutine_threadsafe(
            asyncio.start_server(_relay_to(address, each.target_port), each.host, each.port), loop
        ).result(10)
        for each, address in ports
    ]
    try:
        yield
    finally:
        for server in servers:
            loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def _relay_to(
    address: str, port: int
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            service_reader, service_writer = await asyncio.open_connection(address, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, service_writer), _copy(service_reader, writer))

    return relay


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()
