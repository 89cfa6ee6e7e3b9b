"""ctypes bindings of the functions of librdkafka that by_librdkafka.py uses: one program for every
release, independent of the Python of its wheel.

Structures and functions are unchanged since 1.0; isolation levels were added in 1.2, transactions
in 1.4.
Source: librdkafka's rdkafka.h.
"""

import ctypes
from collections.abc import Iterable, Mapping
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.clients.versions.programs.lines import Failed
else:
    from lines import Failed

BUFFER = 512
PRODUCER, CONSUMER = 0, 1
COPY_PAYLOAD = 0x2
BEGINNING = -2
ANY_OFFSET = -1001


class Message(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = [
        ("err", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("size", c_size_t),
        ("key", c_void_p),
        ("key_size", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    ]


class Place(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = [
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    ]


class Places(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = [("count", c_int), ("size", c_int), ("rows", POINTER(Place))]


DELIVERED = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)
_FUNCTIONS = {
    "rd_kafka_version_str": (c_char_p, []),
    "rd_kafka_err2name": (c_char_p, [c_int]),
    "rd_kafka_last_error": (c_int, []),
    "rd_kafka_conf_new": (c_void_p, []),
    "rd_kafka_conf_set": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]),
    "rd_kafka_conf_destroy": (None, [c_void_p]),
    "rd_kafka_conf_set_dr_msg_cb": (None, [c_void_p, DELIVERED]),
    "rd_kafka_new": (c_void_p, [c_int, c_void_p, c_char_p, c_size_t]),
    "rd_kafka_destroy": (None, [c_void_p]),
    "rd_kafka_topic_new": (c_void_p, [c_void_p, c_char_p, c_void_p]),
    "rd_kafka_topic_destroy": (None, [c_void_p]),
    "rd_kafka_topic_name": (c_char_p, [c_void_p]),
    "rd_kafka_produce": (
        c_int,
        [c_void_p, c_int32, c_int, c_char_p, c_size_t, c_char_p, c_size_t, c_void_p],
    ),
    "rd_kafka_poll": (c_int, [c_void_p, c_int]),
    "rd_kafka_flush": (c_int, [c_void_p, c_int]),
    "rd_kafka_fatal_error": (c_int, [c_void_p, c_char_p, c_size_t]),
    "rd_kafka_poll_set_consumer": (c_int, [c_void_p]),
    "rd_kafka_subscribe": (c_int, [c_void_p, POINTER(Places)]),
    "rd_kafka_assign": (c_int, [c_void_p, POINTER(Places)]),
    "rd_kafka_assignment": (c_int, [c_void_p, POINTER(POINTER(Places))]),
    "rd_kafka_seek": (c_int, [c_void_p, c_int32, c_int64, c_int]),
    "rd_kafka_commit": (c_int, [c_void_p, POINTER(Places), c_int]),
    "rd_kafka_consumer_poll": (POINTER(Message), [c_void_p, c_int]),
    "rd_kafka_consumer_close": (c_int, [c_void_p]),
    "rd_kafka_message_destroy": (None, [POINTER(Message)]),
    "rd_kafka_topic_partition_list_new": (POINTER(Places), [c_int]),
    "rd_kafka_topic_partition_list_add": (POINTER(Place), [POINTER(Places), c_char_p, c_int32]),
    "rd_kafka_topic_partition_list_destroy": (None, [POINTER(Places)]),
}
_OF_TRANSACTIONS = {
    "rd_kafka_init_transactions": (c_void_p, [c_void_p, c_int]),
    "rd_kafka_begin_transaction": (c_void_p, [c_void_p]),
    "rd_kafka_send_offsets_to_transaction": (
        c_void_p,
        [c_void_p, POINTER(Places), c_void_p, c_int],
    ),
    "rd_kafka_commit_transaction": (c_void_p, [c_void_p, c_int]),
    "rd_kafka_abort_transaction": (c_void_p, [c_void_p, c_int]),
    "rd_kafka_consumer_group_metadata": (c_void_p, [c_void_p]),
    "rd_kafka_consumer_group_metadata_destroy": (None, [c_void_p]),
    "rd_kafka_error_code": (c_int, [c_void_p]),
    "rd_kafka_error_is_fatal": (c_int, [c_void_p]),
    "rd_kafka_error_is_retriable": (c_int, [c_void_p]),
    "rd_kafka_error_txn_requires_abort": (c_int, [c_void_p]),
    "rd_kafka_error_destroy": (None, [c_void_p]),
}


class Record(NamedTuple):
    """A consumed record."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes


class Refused(Failed):
    """An error of a transactional call, with its kind as reported by librdkafka."""

    def __init__(self, name: str, *, is_fatal: bool, is_retriable: bool) -> None:
        super().__init__(name)
        self.is_fatal = is_fatal
        self.is_retriable = is_retriable


class Library:
    """librdkafka from the directory of a wheel, with its bundled libraries."""

    def __init__(self, directory: Path) -> None:
        others = [
            file
            for file in directory.iterdir()
            if ".so" in file.name and not file.name.startswith(("librdkafka", "monitoring"))
        ]
        for _ in others:  # each may depend on another one: repeat as often as there are libraries
            for file in others:
                try:
                    ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)
                except OSError:
                    continue
        (file,) = directory.glob("librdkafka*.so*")
        self.c = ctypes.CDLL(str(file))
        self.has_transactions = hasattr(self.c, "rd_kafka_init_transactions")
        for name, (result, arguments) in {
            **_FUNCTIONS,
            **(_OF_TRANSACTIONS if self.has_transactions else {}),
        }.items():
            function = getattr(self.c, name)
            function.restype, function.argtypes = result, arguments
        self.has_isolation = self._knows("isolation.level", "read_committed")

    @property
    def version(self) -> str:
        """The release, as reported by the library."""
        return str(self.c.rd_kafka_version_str().decode())

    def name_of(self, code: int) -> str:
        """Return the name of an error."""
        return str(self.c.rd_kafka_err2name(code).decode())

    def _knows(self, key: str, value: str) -> bool:
        words, conf = ctypes.create_string_buffer(BUFFER), self.c.rd_kafka_conf_new()
        is_known: bool = (
            self.c.rd_kafka_conf_set(conf, key.encode(), value.encode(), words, BUFFER) == 0
        )
        self.c.rd_kafka_conf_destroy(conf)
        return is_known

    def require(self, code: int) -> None:
        """Raise Failed for an error."""
        if code:
            raise Failed(self.name_of(code))

    def client(self, kind: int, settings: Mapping[str, str], delivered: object = None) -> int:
        """Return a new client."""
        words = ctypes.create_string_buffer(BUFFER)
        conf = self.c.rd_kafka_conf_new()
        for key, value in settings.items():
            if self.c.rd_kafka_conf_set(conf, key.encode(), value.encode(), words, BUFFER):
                raise Failed("conf", words.value.decode())
        if delivered is not None:
            self.c.rd_kafka_conf_set_dr_msg_cb(conf, delivered)
        made = self.c.rd_kafka_new(kind, conf, words, BUFFER)
        if not made:
            raise Failed("new", words.value.decode())
        return int(made)

    def places(self, rows: Iterable[tuple[str, int, int]]) -> "ctypes._Pointer[Places]":
        """Return a list of topic, partition, offset, which has to be destroyed."""
        made = self.c.rd_kafka_topic_partition_list_new(4)
        for topic, partition, offset in rows:
            self.c.rd_kafka_topic_partition_list_add(
                made, topic.encode(), partition
            ).contents.offset = offset
        return made  # type: ignore[no-any-return]  # ctypes returns Any

    def require_done(self, error: int | None) -> None:
        """Raise Refused for an rd_kafka_error_t."""
        if error:
            refused = Refused(
                self.name_of(self.c.rd_kafka_error_code(error)),
                is_fatal=bool(self.c.rd_kafka_error_is_fatal(error)),
                is_retriable=bool(self.c.rd_kafka_error_is_retriable(error)),
            )
            self.c.rd_kafka_error_destroy(error)
            raise refused
