"""Parses the Dockerfile, and executes its steps in a clean folder, without a container engine.

The folder replaces the root of the image: WORKDIR, COPY and the paths in RUN point into it. A new
virtual environment replaces the Python of the base image, and a directory the home of the user that
`useradd` would create. The build context is filtered by .dockerignore. A stage that another one
copies from is built in a folder of its own; what is copied then points into the new folder. What
this cannot try: that the base image of that digest exists, users and owners, and file systems.
"""

import json
import os
import re
import shutil
import subprocess
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROJECT_ROOT = Path(__file__).parents[2]
FILE = PROJECT_ROOT / "Dockerfile"
IGNORE_FILE = PROJECT_ROOT / ".dockerignore"
KNOWN = {
    *("FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "VOLUME", "ENTRYPOINT", "CMD"),
    *("EXPOSE", "HEALTHCHECK"),
}
IMAGE_PATH = re.compile(
    r"(?<![\w./-])/(?=(?:opt|var/lib)/kraftsim\b|etc/(?:kafka|confluent)/docker\b|mnt/shared\b"
    r"|tmp/testcontainers|tc-start)"
)
"""Prefixes of paths of the image; other absolute paths belong to the system."""
KEEPS_NO_CACHE = "PIP_NO_CACHE_DIR"
"""Makes an image smaller; here it would only cause everything to be downloaded again."""
OPTION = re.compile(r"--chown=kraftsim|--from=[a-z-]+")
STEP_SECONDS = 600
SYSTEM_PROGRAMS = ("/usr/bin", "/bin")
NOT_IN_THE_BASE_IMAGE = ("java", "python", "pip")
USERADD = """#!/bin/sh
while [ $# -gt 1 ]; do
    [ "$1" = --home-dir ] && mkdir -p "$2"
    shift
done
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction."""

    verb: str
    words: str


@dataclass(slots=True)
class ScenarioEnvironment:
    """The instructions after one FROM."""

    name: str
    base: str
    steps: list[Step] = field(default_factory=list)


def stages() -> dict[str, ScenarioEnvironment]:
    """Return the stages by name, in the order of the file; by default an image is built from the
    last one.
    """
    found: dict[str, ScenarioEnvironment] = {}
    lines = [
        line for line in FILE.read_text().splitlines() if line.strip() and not line.startswith("#")
    ]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        verb, _, words = line.partition(" ")
        assert verb in KNOWN, f"the rehearsal does not know {verb}"
        if verb == "FROM":
            base, _, name = words.partition(" AS ")
            found[name] = ScenarioEnvironment(name, base)
        else:
            list(found.values())[-1].steps.append(Step(verb, words))
    return found


def steps_of(target: str) -> list[Step]:
    """Return all steps of a stage, those of its base stages first."""
    stage = stages()[target]
    return [*(steps_of(stage.base) if stage.base in stages() else []), *stage.steps]


def context_files() -> list[Path]:
    """Return the files of the build context after .dockerignore, relative to the repository."""
    lines = [
        line for line in IGNORE_FILE.read_text().splitlines() if line and not line.startswith("#")
    ]
    assert (
        lines[0] == "*"
        and lines[-1] == "**/__pycache__"
        and all(line.startswith("!") for line in lines[1:-1])
    )
    found = []
    for name in (line.removeprefix("!") for line in lines[1:-1]):
        place = PROJECT_ROOT / name
        assert place.exists(), f".dockerignore includes {name}, which does not exist"
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        found += [
            file.relative_to(PROJECT_ROOT)
            for file in files
            if file.is_file() and "__pycache__" not in file.parts
        ]
    return found


class Image:
    """A stage that was executed below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment: dict[str, str] = {}
        self.directory = root
        self.user = "root"
        self.entrypoint: tuple[str, ...] = ()
        self.default_command: tuple[str, ...] = ()
        self.done: list[str] = []
        self.ports: list[int] = []
        self.health: tuple[str, ...] = ()
        self._stages: dict[str, Image] = {}

    @property
    def programs(self) -> Path:
        """The directory in place of that of the programs of the base image."""
        return self.root / "python" / "bin"

    def local(self, text: str) -> str:
        """Map every path of the image into the folder."""
        return IMAGE_PATH.sub(f"{self.root}/", text)

    def process_environment(self) -> dict[str, str]:
        """Return the environment of a process in a container: only the search paths of the caller
        are kept.
        """
        passed = {
            key: value
            for key, value in os.environ.items()
            if key in {"LANG", "LC_ALL"} or key.startswith(("PIP_", "SSL_"))
        }
        home = (
            self.local(f"/var/lib/{self.user}")
            if self.user != "root"
            else os.environ.get("HOME", "/")
        )
        path = f"{self.programs}:{self.root / 'system'}"
        own = {
            key: self.local(value).replace("$PATH", path) for key, value in self.environment.items()
        }
        return {**passed, "PATH": path, "HOME": home, **own}

    def build(self, target: str) -> "Image":
        """Execute the steps of a stage."""
        venv.create(self.root / "python", with_pip=True)
        stand_in = self.programs / "useradd"
        stand_in.write_text(USERADD)
        stand_in.chmod(0o755)
        self._link_system_programs()
        for step in steps_of(target):
            self._carry_out(step)
        return self

    def _link_system_programs(self) -> None:
        """Link the programs of this machine, except for those that the base image lacks and that
        would be used if found.
        """
        system = self.root / "system"
        system.mkdir()
        for directory in SYSTEM_PROGRAMS:
            for program in Path(directory).iterdir():
                link = system / program.name
                if not link.is_symlink() and not program.name.startswith(NOT_IN_THE_BASE_IMAGE):
                    link.symlink_to(program)

    def _carry_out(self, step: Step) -> None:
        match step.verb:
            case "ENV":
                self.environment.update(
                    dict(
                        pair.split("=", 1)
                        for pair in step.words.split()
                        if not pair.startswith(KEEPS_NO_CACHE)
                    )
                )
            case "WORKDIR":
                self.directory = Path(self.local(step.words))
                self.directory.mkdir(parents=True, exist_ok=True)
            case "VOLUME":
                assert Path(self.local(step.words)).is_dir(), (
                    f"VOLUME {step.words}: a step must create it, so that it belongs to the user"
                )
            case "USER":
                self.user = step.words
            case "ENTRYPOINT":
                self.entrypoint = tuple(json.loads(step.words))
            case "CMD":
                self.default_command = tuple(json.loads(step.words))
            case "EXPOSE":
                self.ports.append(int(step.words))
            case "HEALTHCHECK":
                self.health = tuple(json.loads(step.words.partition(" CMD ")[2]))
            case "COPY":
                words = step.words.split()
                options = [word for word in words if word.startswith("--")]
                assert all(OPTION.fullmatch(option) for option in options), options
                sources = [word for word in words if not word.startswith("--")]
                stage = next((word[7:] for word in options if word.startswith("--from=")), "")
                if stage:
                    self._copy_from(stage, *sources)
                else:
                    self._copy(*sources)
            case "RUN":
                self._run(step.words)

    def _copy(self, *words: str) -> None:
        *sources, target = words
        goal = Path(self.local(target)) if target.startswith("/") else self.directory / target
        allowed = context_files()
        for source in sources:
            chosen = [
                file for file in allowed if file == Path(source) or file.is_relative_to(source)
            ]
            assert chosen, f"COPY {source}: nothing of that name is in the context"
            for file in chosen:
                place = (
                    goal / file.relative_to(source)
                    if (PROJECT_ROOT / source).is_dir()
                    else goal / file.name
                )
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(PROJECT_ROOT / file, place)

    def _copy_from(self, stage: str, source: str, target: str) -> None:
        """Copy a directory of another stage; scripts and links in it point into this folder."""
        other = self._stage(stage)
        goal = Path(self.local(target))
        shutil.copytree(other.local(source), goal, symlinks=True)
        old, new = str(other.root), str(self.root)
        for path in goal.rglob("*"):
            if path.is_symlink() and str(path.readlink()).startswith(old):
                link = str(path.readlink()).replace(old, new)
                path.unlink()
                path.symlink_to(link)
            elif (
                not path.is_symlink()
                and path.is_file()
                and (path.parent.name == "bin" or path.name == "pyvenv.cfg")
            ):
                path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))

    def _stage(self, name: str) -> "Image":
        if name not in self._stages:
            self._stages[name] = Image(self.root.parent / f"{self.root.name}-{name}").build(name)
        return self._stages[name]

    def _run(self, words: str) -> None:
        done = self.process("sh", "-ec", words, seconds=STEP_SECONDS)
        assert done.returncode == 0, f"RUN {words}\n{done.stdout}\n{done.stderr}"
        self.done.append(words)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the image with these arguments, as `docker run` would."""
        return self.process(*self.entrypoint, *(words or self.default_command))

    def process(
        self, *words: str, seconds: float = 60, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the directory and environment of the image; `environment` is added."""
        command = [self.local(word) for word in words]
        return subprocess.run(
            command,
            cwd=self.directory,
            env={**self.process_environment(), **(environment or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
