"""A real S3 server on loopback: S3Proxy, from Maven."""

import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

import boto3

from kraftsim.cluster.ports import free_port_range
from tests.apache_kafka.class_path import CACHE, MAVEN_SECONDS, Missing, java, maven

RELEASE = "2.6.0"
ACCESS_KEY, SECRET_KEY, BUCKET = "kraftsim", "kraftsim-secret", "segments"
START_SECONDS = 60.0
PRINTED, LINES_SHOWN = "printed.txt", 20
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kraftsim</groupId>
  <artifactId>s3proxy</artifactId>
  <version>1</version>
  <dependencies><dependency><groupId>org.gaul</groupId><artifactId>s3proxy</artifactId><version>{RELEASE}</version></dependency></dependencies>
</project>
"""


class S3ServerFailed(RuntimeError):
    """S3Proxy is available but did not start: a failure, not a reason to skip a test."""


class S3Server:
    """One bucket in a temporary directory. Use as a context manager.

    Raises Missing without Java or Maven, and S3ServerFailed if both are available and the server
    does not start.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port_range(1)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of its clients, to be prefixed with `rsm.config.`."""
        return {
            "s3.endpoint.url": f"http://127.0.0.1:{self.port}",
            "s3.access.key.id": ACCESS_KEY,
            "s3.secret.access.key": SECRET_KEY,
            "s3.path.style.access": "true",
            "s3.bucket": BUCKET,
        }

    def __enter__(self) -> "S3Server":
        home = Path(self._directory.name)
        (home / "data").mkdir()
        lines = (
            "s3proxy.authorization=aws-v2-or-v4",
            f"s3proxy.endpoint=http://127.0.0.1:{self.port}",
            f"s3proxy.identity={ACCESS_KEY}",
            f"s3proxy.credential={SECRET_KEY}",
            "jclouds.provider=filesystem-nio2",
            "jclouds.identity=local",
            "jclouds.credential=local",
            f"jclouds.filesystem.basedir={home / 'data'}",
        )
        (home / "s3proxy.conf").write_text("\n".join(lines))
        command = [
            str(java()),
            "-XX:TieredStopAtLevel=1",
            "-Xmx256m",
            "-cp",
            _class_path(),
            "org.gaul.s3proxy.Main",
            "--properties",
            "s3proxy.conf",
        ]
        with (home / PRINTED).open("wb") as printed:
            self._process = subprocess.Popen(
                command, cwd=home, stdout=printed, stderr=subprocess.STDOUT
            )
        try:
            self._make_bucket()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._directory.cleanup()

    def _make_bucket(self) -> None:
        client = boto3.client(
            "s3",
            endpoint_url=self.settings["s3.endpoint.url"],
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                client.create_bucket(Bucket=BUCKET)
                return
            except Exception as failure:  # not there yet
                assert self._process is not None
                ended = self._process.poll()
                if ended is not None or time.monotonic() > deadline:
                    how = (
                        f"ended with {ended}"
                        if ended is not None
                        else f"did not answer within {START_SECONDS:g} s ({failure})"
                    )
                    raise S3ServerFailed(
                        f"S3Proxy {how}, and printed:\n{self._printed()}"
                    ) from failure
                time.sleep(0.2)

    def _printed(self) -> str:
        return "\n".join(
            (Path(self._directory.name) / PRINTED)
            .read_text(errors="replace")
            .splitlines()[-LINES_SHOWN:]
        )


def _class_path() -> str:
    remembered = CACHE / f"s3proxy-{RELEASE}" / "class_path.txt"
    if not remembered.exists() or not all(
        Path(each).exists() for each in remembered.read_text().split(":")
    ):
        remembered.parent.mkdir(parents=True, exist_ok=True)
        pom = remembered.with_suffix(".pom")
        pom.write_text(POM)
        command = [
            maven(),
            "-B",
            "-q",
            "-f",
            str(pom),
            "dependency:build-classpath",
            f"-Dmdep.outputFile={remembered}",
            "-Dmdep.pathSeparator=:",
        ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=MAVEN_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            raise Missing(
                f"Maven could not bring S3Proxy: {(done.stdout + done.stderr).splitlines()[:1]}"
            )
    return remembered.read_text()
