"""JAAS configuration in Kafka's properties: `some.LoginModule required username="u" password="p"
user_alice="secret";`.

Source: org.apache.kafka.common.security.JaasConfig, PlainLoginModule, PlainServerCallbackHandler.
"""

import re
from dataclasses import dataclass, field

USER_PREFIX = "user_"
_OPTION_VALUE = r"\"(?:[^\"\\]|\\.)*\"|[^\s;\"]+"
_ENTRY = re.compile(
    rf"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)((?:\s+[\w.\-]+\s*=\s*(?:{_OPTION_VALUE}"
    r"))*)\s*;\s*",
    re.IGNORECASE,
)
_OPTION = re.compile(rf"([\w.\-]+)\s*=\s*({_OPTION_VALUE})")
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """One entry: the credentials of this side, and the accepted users with passwords."""

    username: str = ""
    password: str = field(default="", repr=False)
    passwords: dict[str, str] = field(default_factory=dict, repr=False)
    """user -> password, from the options `user_NAME`."""


def parse_jaas(text: str) -> LoginSettings:
    """Parse one entry. Raises ValueError, without the text, as it has secrets."""
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ValueError(
            'expected a login module, a control flag, options as name="value", and a semicolon'
        )
    options = {name: _unquoted(value) for name, value in _OPTION.findall(match[3])}
    passwords = {
        name[len(USER_PREFIX) :]: value
        for name, value in options.items()
        if name.startswith(USER_PREFIX)
    }
    return LoginSettings(options.get("username", ""), options.get("password", ""), passwords)


def _unquoted(value: str) -> str:
    return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
