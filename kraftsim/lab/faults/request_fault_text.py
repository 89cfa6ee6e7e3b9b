"""The text form of a fault of requests: `EndTxn error=CONCURRENT_TRANSACTIONS times=3`.

    FAULT   := API ACTION OPTION...
    API     := Kafka's name of a request, its key, or * for any
    ACTION  := error=NAME | duplicate | blackhole | throttle
             | drop, delay, reorder, disconnect, truncate or throttle, each =request or =reply
    OPTION  := once | done | version=N, N.., ..N or N..M | FIELD=VALUE

FIELD is a field of `RequestFault`; `times=all` is no limit, `sender=any` any sender, and `done` is
for an error: the node serves the request before. A value with blanks is quoted as in a shell. The
command line, the HTTP control, scenarios, replays and tests read the same form;
`request_fault_text` prints what `parse_request_fault` reads.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final

from kraftsim.lab.faults.rules_request_faults import (
    MEANT_FOR,
    RequestAction,
    RequestFault,
    api_key_of,
    api_name,
    error_code_of,
    error_name,
)

ANY_API, ANY_SENDER, NO_LIMIT, ONCE, DONE = "*", "any", "all", "once", "done"
REQUEST, REPLY = "request", "reply"
RANGE: Final = re.compile(r"(\d*)(\.\.)?(\d*)")
PLAIN_VALUE: Final = re.compile(r"[^\s'\"\\]+")
ACTIONS: Final = {action.value: action for action in RequestAction}


class BadRequestFault(ValueError):
    """A text that is no fault of requests; one line that says what is wrong and what is right."""


def _number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError as wrong:
        raise BadRequestFault(f"{name}={value}: it is a number") from wrong
    if number != number or number in (float("inf"), float("-inf")):
        raise BadRequestFault(f"{name}={value}: it is a finite number")
    return number


def _integer(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError as wrong:
        raise BadRequestFault(f"{name}={value}: it is a whole number") from wrong


def _share(name: str, value: str) -> float:
    if value.endswith("%"):
        return _number(name, value.removesuffix("%")) / 100
    return _number(name, value)


def _times(name: str, value: str) -> int | None:
    return None if value == NO_LIMIT else _integer(name, value)


def _sender(name: str, value: str) -> str | None:
    return None if value == ANY_SENDER else value


def _text(name: str, value: str) -> str:
    return value


FIELDS: Final[Mapping[str, Callable[[str, str], object]]] = {
    "topic": _text,
    "topic_id": _text,
    "partition": _integer,
    "client_id": _text,
    "transactional_id": _text,
    "group": _text,
    "node": _text,
    "sender": _sender,
    "delay_ms": _number,
    "wait_ms": _number,
    "overtaken_by": _integer,
    "after_bytes": _integer,
    "throttle_ms": _integer,
    "bytes_per_second": _integer,
    "nth": _integer,
    "times": _times,
    "share": _share,
    "duration_ms": _number,
}
"""How a field is read, in the order in which fields are printed."""
VERSION: Final = "version"
WORDS: Final[Mapping[str, Mapping[str, object]]] = {ONCE: {"times": 1}, DONE: {"done": True}}
"""Options without a value."""
OPTIONS: Final = (*FIELDS, VERSION, *WORDS)


def parse_request_fault(text: str) -> RequestFault:
    """Return the fault that a text says.

    Raises BadRequestFault, a ValueError, with one line for people.
    """
    try:
        words = shlex.split(text)
    except ValueError as wrong:
        raise BadRequestFault(f"{text}: a quotation mark is not closed") from wrong
    if len(words) < 2:
        raise BadRequestFault(
            f"{text or 'nothing'}: a fault is an API and an action, such as EndTxn "
            "error=CONCURRENT_TRANSACTIONS times=3"
        )
    given: dict[str, object] = {"api": _api(words[0])}
    for word in words[1:]:
        for name, value in _understood(word).items():
            if name in given:
                raise BadRequestFault(
                    f"{word}: one action only, and there is {_action_of(given)} already"
                    if name == "action"
                    else f"{word}: {name} is given twice"
                )
            given[name] = value
    if "action" not in given:
        raise BadRequestFault(f"{text}: it has no action (the actions are {', '.join(ACTIONS)})")
    try:
        return RequestFault(**given)  # type: ignore[arg-type]  # by FIELDS of the right types
    except ValueError as wrong:
        raise BadRequestFault(f"{text}: {wrong}") from wrong


def request_fault_text(fault: RequestFault) -> str:
    """Return the text that says a fault: what `parse_request_fault` makes the same fault of."""
    words = [ANY_API if fault.api is None else api_name(fault.api), _action_text(fault)]
    if fault.action is RequestAction.ERROR and fault.done:
        words.append(DONE)
    low, high = fault.version_min, fault.version_max
    if low is not None and low == high:
        words.append(f"{VERSION}={low}")
    elif low is not None or high is not None:
        words.append(f"{VERSION}={'' if low is None else low}..{'' if high is None else high}")
    for name in FIELDS:
        value = getattr(fault, name)
        if value != _default(name):
            words.append(f"{name}={_value_text(name, value)}")
    return " ".join(words)


def _api(word: str) -> int | None:
    if word == ANY_API:
        return None
    if word.partition("=")[0] in (*ACTIONS, *OPTIONS):
        raise BadRequestFault(f"{word}: the API comes first (* for any), such as EndTxn {word}")
    try:
        return api_key_of(int(word) if word.isdecimal() else word)
    except ValueError as wrong:
        raise BadRequestFault(
            f"{word} is no key of an API of Kafka" if word.isdecimal() else str(wrong)
        ) from wrong


def _understood(word: str) -> dict[str, object]:
    """Return the fields of a fault that a word sets."""
    name, sign, value = word.partition("=")
    if word in WORDS:
        return dict(WORDS[word])
    if name in ACTIONS:
        return _action(ACTIONS[name], value, is_bare=not sign)
    if name not in OPTIONS or name in WORDS:
        known = (*ACTIONS, *OPTIONS)
        near = get_close_matches(name, known, 2)
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"actions are {', '.join(ACTIONS)}; options are {', '.join(OPTIONS)}"
        )
        raise BadRequestFault(f"{word}: there is no {name or 'name'}: {hint}")
    if not sign:
        raise BadRequestFault(f"{name}: it needs a value, as {name}=VALUE")
    if name == VERSION:
        return _versions(value)
    return {name: FIELDS[name](name, value)}


def _action(action: RequestAction, value: str, *, is_bare: bool) -> dict[str, object]:
    if action is RequestAction.ERROR:
        if not value:
            raise BadRequestFault("error: it needs the name of one, as error=NOT_COORDINATOR")
        try:
            code = error_code_of(int(value) if value.lstrip("-").isdecimal() else value)
        except ValueError as wrong:
            raise BadRequestFault(str(wrong)) from wrong
        return {"action": action, "error": code}
    if is_bare:
        return {"action": action}
    if action not in MEANT_FOR["done"]:
        raise BadRequestFault(f"{action.value}={value}: it has no value")
    if value not in (REQUEST, REPLY):
        amount = {
            RequestAction.DELAY: "; how long is delay_ms=50",
            RequestAction.THROTTLE: "; how long is throttle_ms=500",
            RequestAction.TRUNCATE: "; how many bytes are left is after_bytes=20",
        }.get(action, "")
        raise BadRequestFault(f"{action.value}={value}: it is request or reply{amount}")
    return {"action": action, "done": value == REPLY}


def _action_text(fault: RequestFault) -> str:
    name = fault.action.value
    if fault.action is RequestAction.ERROR:
        return f"{name}={error_name(fault.error)}"
    if fault.action not in MEANT_FOR["done"] or fault.throttle_ms:
        return name
    return f"{name}={REPLY if fault.done else REQUEST}"


def _action_of(given: Mapping[str, object]) -> str:
    action = given["action"]
    assert isinstance(action, RequestAction), "read by _action"
    return action.value


def _versions(value: str) -> dict[str, object]:
    found = RANGE.fullmatch(value)
    if found is None or not value or value == "..":
        raise BadRequestFault(f"{VERSION}={value}: it is a version, or a range such as 3..5 or 3..")
    low, is_range, high = found.groups()
    if not is_range:
        return {"version_min": int(low), "version_max": int(low)}
    return {
        "version_min": int(low) if low else None,
        "version_max": int(high) if high else None,
    }


def _default(name: str) -> object:
    return getattr(_PLAIN, name)


def _value_text(name: str, value: object) -> str:
    if value is None:
        return ANY_SENDER if name == "sender" else NO_LIMIT
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    text = str(value)
    return text if PLAIN_VALUE.fullmatch(text) else shlex.quote(text)


_PLAIN: Final = RequestFault(action=RequestAction.DROP)
