"""The Java program, compiled once against kafka-clients 2.0.1, with the jars of any release."""

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.apache_kafka.class_path import (
    MAVEN_SECONDS,
    PROJECT_ROOT,
    Missing,
    java,
    maven,
    one_at_a_time,
)

SOURCE = Path(__file__).parent / "java"
BUILT = PROJECT_ROOT / "build" / "clients" / "java"
BUILT_AGAINST = "2.0.1"
JVM = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx96m",
    "-Xshare:auto",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)
SHA256 = {
    "1.1.1": "a92dd1c76be061ad40e1d2421c8a6a3f148c6c3b82af2f2259ad40e7c400d7bc",
    "2.0.1": "15c5d622c6488c7ec2a1aca263d2e54b04d940d8105ea9fdcb95d82b97e07674",
    "2.3.1": "1426faeb8385f3b2174428fae092260862bfd9b78504d3839e1f84891cad7396",
    "2.8.2": "0351de6b808f551e4c6cf230a83984d653e14776cc0f4621e7a3eab377e2f621",
    "3.0.2": "18661864d84e6c2c06e56c4a927a17bd95e29d99ad90ea71cbd3f3092bb864a7",
    "3.4.1": "9d0a9058c8ede79db6e54ae378ed16fe8d1bead2894635a4aa6aa0b7981668c6",
    "3.9.2": "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    "4.0.2": "902bf4749ad601b7f272a0f3385a781f44750121a54abe52b7495be4de8f977f",
    "4.4.0": "1ab07317eb6633241392449d329dbdc5d9251e6ffc4926860f42dd966e88bdf9",
}
"""Release -> hash of its kafka-clients jar."""


def command(version: str) -> Sequence[str]:
    """Return the command of the program on a release. Raises Missing."""
    jars = _class_path(version)
    _require_pinned(version, jars)
    return [str(java()), *JVM, "-cp", f"{_classes()}:{jars}", "kraftsim.Client"]


def _class_path(version: str) -> str:
    remembered = BUILT / f"{version}.txt"
    if not remembered.exists() or not all(
        Path(jar).exists() for jar in remembered.read_text().strip().split(":")
    ):
        _run_maven(version, "dependency:build-classpath", f"-Dmdep.outputFile={remembered}")
    return remembered.read_text().strip()


def _classes() -> Path:
    classes, done = BUILT / "classes", BUILT / "compiled"
    sources = [SOURCE / "pom.xml", *SOURCE.rglob("*.java")]
    if not done.exists() or any(
        done.stat().st_mtime < source.stat().st_mtime for source in sources
    ):
        _run_maven(BUILT_AGAINST, "compile")
        done.touch()
    return classes


def _run_maven(version: str, *goals: str) -> None:
    java()
    BUILT.mkdir(parents=True, exist_ok=True)
    properties = [f"-Dkraftsim.build={BUILT}", f"-Dkafka.version={version}"]
    environment = {**os.environ, "MAVEN_OPTS": "-XX:TieredStopAtLevel=1"}
    with one_at_a_time():
        words = [maven(), "-B", "-q", "-f", str(SOURCE / "pom.xml"), *properties, *goals]
        done = subprocess.run(
            words,
            env=environment,
            capture_output=True,
            text=True,
            timeout=MAVEN_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    if done.returncode != 0:
        raise Missing(
            f"Maven could not bring or build the client {version}: "
            f"{(done.stdout + done.stderr).strip()[:300]}"
        )


def _require_pinned(version: str, jars: str) -> None:
    (jar,) = (
        Path(each) for each in jars.split(":") if each.endswith(f"kafka-clients-{version}.jar")
    )
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    assert found == SHA256[version], f"{jar} does not have the pinned hash: {found}"
