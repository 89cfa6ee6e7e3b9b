"""Places of runs and datasets: directories of this machine, and those of object stores and other
file systems, named by an address such as `s3a://bucket/prefix`.

A file of an object store appears as a whole or not at all, and cannot be renamed. So nothing here
renames, except `publish`, to let a file appear as a whole where it would not. What a place needs
besides its address comes from the environment, never from the address: addresses are stored in
manifests and printed.

Source: Hadoop's FileSystem URIs; the variables of the AWS SDKs (AWS_ENDPOINT_URL and others).
"""

import io
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, TypeAlias, TypeVar, cast
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyarrow import NativeFile
    from pyarrow.fs import FileSystem

T = TypeVar("T")
U = TypeVar("U")

SCHEMES: Final = ("file", "s3", "s3a", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
"""Those that pyarrow resolves, and Hadoop's name for S3."""
S3_SCHEMES: Final = ("s3", "s3a")
OBJECT_STORES: Final = ("s3:", "s3a:", "gs:", "gcs:")
"""How addresses begin of stores without directories, where a file cannot be renamed."""
REQUESTS: Final = 16
"""Requests to a store at a time, where there are many: each waits for the network."""
READ_BYTES: Final = 1 << 20
"""What is read ahead of a line of a remote file."""
CONNECT_SECONDS: Final = 5.0
ATTEMPTS: Final = 3
SETTINGS: Final = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
)
"""Variables that decide how a bucket is reached; a change makes a new connection."""
HADOOP_SETTINGS: Final[Mapping[str, str]] = {
    "spark.hadoop.fs.s3a.endpoint": "AWS_ENDPOINT_URL",
    "spark.hadoop.fs.s3a.endpoint.region": "AWS_REGION",
    "spark.hadoop.fs.s3a.access.key": "AWS_ACCESS_KEY_ID",
    "spark.hadoop.fs.s3a.secret.key": "AWS_SECRET_ACCESS_KEY",
    "spark.hadoop.fs.s3a.session.token": "AWS_SESSION_TOKEN",
}
_DENIED: Final = re.compile(
    "ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_ACCESS_KEY_ID|HTTP status 40[13]"
)
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_SAID: Final = (
    ("NO_SUCH_BUCKET|Bucket '.*' not found", "there is no such bucket"),
    ("NETWORK_CONNECTION", "no connection: check AWS_ENDPOINT_URL, and the network"),
    ("NO_SUCH_KEY|RESOURCE_NOT_FOUND", "there is no such file"),
)


class PlaceError(OSError):
    """A place cannot be used; the message is one line with its address."""


class AccessDenied(PlaceError):
    """A store refused the credentials, or they lack rights."""


class MissingFile(PlaceError, FileNotFoundError):
    """A remote file that is not there."""


class FoundFile(NamedTuple):
    """A file below a place: its path from there, its size, and when it was written."""

    path: str
    size_bytes: int
    modified_ns: int


class Place(ABC):
    """A file or a directory, which need not exist. Its text is its address.

    All methods raise OSError; that of a remote place is a PlaceError.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The last part of the address."""

    @property
    @abstractmethod
    def parent(self) -> "Place":
        """The directory of this file or directory."""

    @abstractmethod
    def __truediv__(self, path: str) -> "Place": ...

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def is_file(self) -> bool:
        """Return whether there is such a file."""

    @abstractmethod
    def is_directory(self) -> bool:
        """Return whether there is such a directory, or a file below it."""

    @abstractmethod
    def check(self) -> None:
        """Raise PlaceError if what the place lies in, its bucket, is not there."""

    @abstractmethod
    def files(self, suffix: str = "", *, is_deep: bool = True) -> list[FoundFile]:
        """Return the files in this directory, and below it, by the end of their names; sorted."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """The size of a file."""

    @abstractmethod
    def read(self) -> bytes:
        """Return the content of a file."""

    @abstractmethod
    def open(self) -> BinaryIO:
        """Open a file for reading and seeking."""

    @abstractmethod
    def create(self) -> "NativeFile":
        """Open a file for writing; a store shows it when it is closed."""

    @abstractmethod
    def publish(self, content: bytes) -> None:
        """Write a file, which appears as a whole; it replaces a former one."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete files below this directory, and the directories that are empty then."""

    @abstractmethod
    def delete_tree(self) -> None:
        """Delete this directory with all that is below it, if it is there."""

    @abstractmethod
    def arrow(self) -> "tuple[str, FileSystem | None]":
        """Return path and file system for pyarrow."""

    @property
    @abstractmethod
    def hadoop(self) -> str:
        """The address for Spark."""

    @property
    def is_local(self) -> bool:
        """Whether this is a directory of this machine."""
        return isinstance(self, LocalPlace)

    def many(self, call: Callable[[T], U], values: Iterable[T]) -> Iterator[U]:
        """Call a function that waits for this place with many values; the order stays."""
        return map(call, values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(other) == str(self)

    def __hash__(self) -> int:
        return hash(str(self))


Where: TypeAlias = Place | Path | str
"""A place, or the address of one."""


class LocalPlace(Place):
    """A directory or file of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name or self.path.resolve().name

    @property
    def parent(self) -> "LocalPlace":
        """The directory."""
        return LocalPlace(self.path.parent)

    def __truediv__(self, path: str) -> "LocalPlace":
        return LocalPlace(self.path / path)

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    def is_file(self) -> bool:
        """Return whether there is such a file."""
        return self.path.is_file()

    def is_directory(self) -> bool:
        """Return whether there is such a directory."""
        return self.path.is_dir()

    def check(self) -> None:
        """Do nothing: directories are made where they are needed."""

    def files(self, suffix: str = "", *, is_deep: bool = True) -> list[FoundFile]:
        """Return the files."""
        found = []
        for path in sorted((self.path.rglob if is_deep else self.path.glob)(f"*{suffix}")):
            with suppress(FileNotFoundError):  # deleted meanwhile
                status = path.stat()
                if not path.is_dir():
                    name = path.relative_to(self.path).as_posix()
                    found.append(FoundFile(name, status.st_size, status.st_mtime_ns))
        return found

    @property
    def size_bytes(self) -> int:
        """The size."""
        return self.path.stat().st_size

    def read(self) -> bytes:
        """Return the content."""
        return self.path.read_bytes()

    def open(self) -> BinaryIO:
        """Open the file."""
        return open(self.path, "rb")

    def create(self) -> "NativeFile":
        """Open the file, in a directory that is made."""
        import pyarrow

        self.path.parent.mkdir(parents=True, exist_ok=True)
        return pyarrow.OSFile(str(self.path), "wb")

    def publish(self, content: bytes) -> None:
        """Write the file under another name first."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_name(f"{self.path.name}.unfinished")
        unfinished.write_bytes(content)
        unfinished.replace(self.path)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete the files."""
        directories = set()
        for path in paths:
            (self.path / path).unlink(missing_ok=True)
            directories.add((self.path / path).parent)
        for directory in directories:
            with suppress(OSError):  # it is not empty
                while directory != self.path:
                    directory.rmdir()
                    directory = directory.parent

    def delete_tree(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.path, ignore_errors=True)

    def arrow(self) -> "tuple[str, FileSystem | None]":
        """Return the path."""
        return str(self.path), None

    @property
    def hadoop(self) -> str:
        """The path."""
        return str(self.path)


class RemotePlace(Place):
    """A directory or file of another file system: `base`, its scheme and authority, and the path
    below it.
    """

    def __init__(self, base: str, path: str) -> None:
        self._base, self._path = base, path

    @property
    def name(self) -> str:
        """The last part of the address: that of a bucket is the bucket."""
        return str(self).rpartition("/")[2]

    @property
    def parent(self) -> "RemotePlace":
        """The directory; that of a bucket is the bucket."""
        return RemotePlace(self._base, self._path.rpartition("/")[0])

    def __truediv__(self, path: str) -> "RemotePlace":
        return RemotePlace(self._base, f"{self._path}/{path}".strip("/"))

    def __str__(self) -> str:
        return f"{self._base}/{self._path}" if self._path else self._base

    def is_file(self) -> bool:
        """Return whether there is such a file."""
        return self._info().is_file

    def is_directory(self) -> bool:
        """Return whether there is a file below."""
        from pyarrow.fs import FileType

        return bool(self._info().type == FileType.Directory)

    def check(self) -> None:
        """Raise PlaceError if there is no such bucket. Rights may be limited to a prefix, so the
        bucket is asked only if nothing is at the address.
        """
        if self._path and (self.is_directory() or self.is_file()):
            return
        bucket = RemotePlace(self._base, "")
        try:
            is_there = bucket.is_directory()
        except AccessDenied:
            if not self._path:
                raise
            return
        if not is_there:
            raise PlaceError(f"{self}: there is no such bucket")

    def files(self, suffix: str = "", *, is_deep: bool = True) -> list[FoundFile]:
        """Return the files."""
        from pyarrow.fs import FileSelector

        path, filesystem = self.arrow()
        with one_line(self):
            listed = filesystem.get_file_info(
                FileSelector(path, allow_not_found=True, recursive=is_deep)
            )
        return sorted(
            FoundFile(each.path[len(path) :].lstrip("/"), each.size, each.mtime_ns or 0)
            for each in listed
            if each.is_file and each.path.endswith(suffix)
        )

    @property
    def size_bytes(self) -> int:
        """The size."""
        return self._info().size

    def read(self) -> bytes:
        """Return the content."""
        path, filesystem = self.arrow()
        with one_line(self), filesystem.open_input_stream(path) as file:
            return bytes(file.read())

    def open(self) -> BinaryIO:
        """Open the file."""
        path, filesystem = self.arrow()
        with one_line(self):
            file = _RemoteFile(self, filesystem.open_input_file(path))
        return io.BufferedReader(file, READ_BYTES)

    def create(self) -> "NativeFile":
        """Open the file; a directory is made if the place needs one."""
        path, filesystem = self.arrow()
        with one_line(self):
            if not self._base.startswith(OBJECT_STORES):
                filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            return filesystem.open_output_stream(path)

    def publish(self, content: bytes) -> None:
        """Write the file. Where files can be renamed, it is written under another name first; an
        object store shows it when it is complete.
        """
        path, filesystem = self.arrow()
        is_store = self._base.startswith(OBJECT_STORES)
        unfinished = self if is_store else self.parent / f"{self.name}.unfinished"
        with one_line(self):
            with unfinished.create() as file:
                file.write(content)
            if not is_store:
                filesystem.move(unfinished.arrow()[0], path)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete the files, each by a request of its own: not every store has bulk requests as
        pyarrow sends them.
        """
        root, filesystem = self.arrow()

        def delete_one(path: str) -> None:
            with one_line(self), suppress(FileNotFoundError):
                filesystem.delete_file(f"{root}/{path}")

        for _ in self.many(delete_one, paths):
            pass

    def delete_tree(self) -> None:
        """Delete all files below."""
        self.delete([file.path for file in self.files()])

    def arrow(self) -> "tuple[str, FileSystem]":
        """Return path and file system. Raises PlaceError for an unknown scheme."""
        settings = tuple(os.environ.get(name, "") for name in SETTINGS)
        with one_line(self):
            filesystem, root = _filesystem(self._base, settings)
        return f"{root}/{self._path}".rstrip("/"), filesystem

    @property
    def hadoop(self) -> str:
        """The address with Hadoop's name of the scheme."""
        text = str(self)
        return f"s3a{text[2:]}" if text.startswith("s3:") else text

    def many(self, call: Callable[[T], U], values: Iterable[T]) -> Iterator[U]:
        """Call the function from several threads."""
        with ThreadPoolExecutor(REQUESTS) as threads:
            yield from threads.map(call, values)

    def _info(self) -> "_Info":
        path, filesystem = self.arrow()
        with one_line(self):
            return cast("_Info", filesystem.get_file_info(path))


class _Info(NamedTuple):
    """What this module uses of pyarrow's FileInfo."""

    is_file: bool
    type: object
    size: int


class _RemoteFile(io.RawIOBase):
    """A file of pyarrow as Python's buffered reader wants it, with errors of one line."""

    def __init__(self, place: Place, file: "io.RawIOBase") -> None:
        self._place, self._file = place, file

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]  # no typeshed name at run time
        """Read into a buffer."""
        with one_line(self._place):
            return self._file.readinto(buffer) or 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Seek, and return the new position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def seekable(self) -> bool:
        """Return that it is."""
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def place_of(where: Where) -> Place:
    """Return a place by its address: a local path, `file:///path`, or `scheme://authority/path`.

    Raises PlaceError for an unknown scheme, and for an address with credentials or settings.
    """
    if isinstance(where, Place):
        return where
    if isinstance(where, Path):
        return LocalPlace(where)
    found = _ADDRESS.fullmatch(where)
    if found is None:
        return LocalPlace(Path(where))
    scheme, rest = found[1].lower(), found[2]
    authority, _, path = rest.partition("/")
    if scheme == "file":
        return LocalPlace(Path(unquote(f"/{path}")))
    if scheme not in SCHEMES:
        raise PlaceError(
            f"{scheme}:// is no known file system: use a local path, or one of "
            f"{', '.join(f'{each}://' for each in SCHEMES)}"
        )
    user = authority.rpartition("@")[0]
    if "?" in rest or ":" in user or (user and scheme in S3_SCHEMES):
        raise PlaceError(
            f"an address of {scheme}:// has no settings and no credentials: they come from the "
            "environment, as AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if not authority and scheme not in ("hdfs", "viewfs"):
        raise PlaceError(f"{scheme}:// needs the name of a bucket: {scheme}://bucket/prefix")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise PlaceError(f"{where}: an address of {scheme}:// cannot contain ..")
    return RemotePlace(f"{scheme}://{authority}", "/".join(parts))


def use_settings(conf: Mapping[str, str]) -> None:
    """Take endpoint and credentials of S3 from settings of Spark (`spark.hadoop.fs.s3a.*`) into the
    environment of this process and its workers. They precede variables that are set.
    """
    for key, name in HADOOP_SETTINGS.items():
        value = conf.get(key)
        if value:
            if name == "AWS_ENDPOINT_URL" and "://" not in value:
                tls = conf.get("spark.hadoop.fs.s3a.connection.ssl.enabled", "true")
                value = f"{'http' if tls.lower() == 'false' else 'https'}://{value}"
            os.environ[name] = value
            if name == "AWS_ENDPOINT_URL":
                os.environ.pop("AWS_ENDPOINT_URL_S3", None)


@cache
def _filesystem(base: str, settings: tuple[str, ...]) -> "tuple[FileSystem, str]":
    """Return the file system of a scheme and an authority, and the path of its root."""
    parts = urlsplit(base)
    if parts.scheme in S3_SCHEMES:
        return _s3(parts.netloc), parts.netloc
    from pyarrow.fs import FileSystem

    filesystem, root = FileSystem.from_uri(f"{base}/")
    return filesystem, root.rstrip("/")


def _s3(bucket: str) -> "FileSystem":
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint:
        # Newer SDKs add checksums in a form that many servers other than Amazon's refuse.
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        os.environ.setdefault("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    return S3FileSystem(
        endpoint_override=endpoint or None,
        region=region or ("us-east-1" if endpoint else resolve_s3_region(bucket)),
        connect_timeout=CONNECT_SECONDS,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        allow_delayed_open=True,  # a small file is one request
    )


@contextmanager
def one_line(place: Place) -> Iterator[None]:
    """Turn an error of pyarrow at a remote place into a PlaceError; one of this machine is one
    line.
    """
    try:
        yield
    except PlaceError:
        raise
    except FileNotFoundError as trouble:
        raise MissingFile(f"{place}: there is no such file") from trouble
    except (OSError, ValueError, NotImplementedError) as trouble:
        if _DENIED.search(str(trouble)):
            raise AccessDenied(
                f"{place}: access was denied: check the credentials in the environment "
                "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), and their rights"
            ) from trouble
        raise PlaceError(_said(place, str(trouble))) from trouble


def _said(place: Place, text: str) -> str:
    """Return an error of pyarrow at a place as one line."""
    for pattern, meaning in _SAID:
        if re.search(pattern, text):
            return f"{place}: {meaning}"
    return f"{place}: {(text.strip().splitlines() or ['it cannot be used'])[0]}"
