"""Security settings of a node: per listener where Kafka supports a `listener.name.NAME.` prefix.

Source: kafka.server.KafkaConfig, org.apache.kafka.common.config.{SaslConfigs, SslConfigs},
JaasContext.loadServerContext, KIP-103, KIP-85.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Final, Protocol

from kraftsim.metadata.rules_config_definitions import WITHOUT_PROTOCOL
from kraftsim.metadata.rules_config_releases import all_broker_settings
from kraftsim.server.config_keys import (
    ConfigError,
)
from kraftsim.server.endpoints import (
    ANY_ADDRESSES,
    ListenerEndpoint,
)
from kraftsim.server.rules_authentication import (
    LOGIN_MECHANISMS,
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    LoginSettings,
    parse_jaas,
)

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PREFIX: Final = "listener.name."
DEFAULT_MECHANISM: Final = "GSSAPI"
JAAS, REAUTHENTICATION = "sasl.jaas.config", "connections.max.reauth.ms"
VALIDATOR: Final = "sasl.server.callback.handler.class"
UNSECURED_VALIDATOR: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)
"""The default of OAUTHBEARER."""
TLS_KEYS: Final = frozenset(
    {
        "ssl.client.auth",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
"""Settings of the whole node that each listener may override."""
LISTENER_ONLY: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)
"""Network settings that only a listener prefix may override."""
OF_MECHANISMS: Final = "sasl."
SECURITY_PREFIXES: Final = (
    "ssl.",
    OF_MECHANISMS,
    "connections.max.reauth.ms",
    "principal.builder.class",
)
_LISTENER_KEY = re.compile(r"listener\.name\.([a-z0-9_\-]+)\.(.+)")
_MECHANISMS = tuple(f"{name.lower()}." for name in (*MECHANISMS, "GSSAPI"))


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """The SASL settings of one listener."""

    mechanisms: tuple[str, ...]
    logins: Mapping[str, LoginSettings]
    """By mechanism."""
    session_ms: Mapping[str, int]
    """By mechanism, the session lifetime after which a client must re-authenticate; 0:
    unlimited.
    """


class SecurityProperties(Protocol):
    """The properties of a node that secure its connections."""

    @property
    def listener_security_protocol_map(self) -> Mapping[str, str]:
        """Listener name -> security protocol."""
        ...

    @property
    def given(self) -> Mapping[str, str]:
        """The given properties, without defaults."""
        ...


class ListenerProperties(SecurityProperties, Protocol):
    """The properties of a node that concern its listeners."""

    @property
    def listeners(self) -> tuple[ListenerEndpoint, ...]:
        """The endpoints to bind."""
        ...

    @property
    def advertised_listeners(self) -> tuple[ListenerEndpoint, ...]:
        """The endpoints that other nodes and clients connect to."""
        ...

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        """The listeners of controllers."""
        ...

    @property
    def inter_broker_listener_name(self) -> str:
        """The listener that brokers connect to."""
        ...

    @property
    def sasl_mechanism_inter_broker_protocol(self) -> str:
        """The mechanism of connections to brokers."""
        ...

    @property
    def sasl_mechanism_controller_protocol(self) -> str:
        """The mechanism of connections to controllers."""
        ...

    @property
    def is_controller(self) -> bool:
        """Whether the node is a controller."""
        ...

    @property
    def is_broker(self) -> bool:
        """Whether the node is a broker."""
        ...


def is_listener_key(name: str) -> bool:
    """Return whether some release allows a property with a listener prefix."""
    return base_key(name) != name and base_key(name) in listener_keys()


def base_key(name: str) -> str:
    """Return the name of a listener's setting without listener prefix and mechanism; any other name
    unchanged.
    """
    found = _LISTENER_KEY.fullmatch(name)
    if found is None:
        return name
    key = found[2]
    of_mechanism = next(
        (key.removeprefix(each) for each in _MECHANISMS if key.startswith(each)), key
    )
    return of_mechanism if of_mechanism.startswith((OF_MECHANISMS, REAUTHENTICATION)) else key


def listener_of(name: str) -> str | None:
    """Return the listener of a prefixed setting, in lower case as in properties; None for any other
    name.
    """
    found = _LISTENER_KEY.fullmatch(name)
    return None if found is None else found[1]


@cache
def listener_keys() -> frozenset[str]:
    """Return all settings that a listener may override, of all releases."""
    return LISTENER_ONLY | {
        name for name in all_broker_settings() if name.startswith(SECURITY_PREFIXES)
    }


def closest_listener_key(name: str) -> list[str]:
    """Return the setting of the same listener that was probably meant, if there is one."""
    found = _LISTENER_KEY.fullmatch(name)
    close = (
        []
        if found is None
        else get_close_matches(found[2], sorted(listener_keys()), n=1, cutoff=0.85)
    )
    return [name.removesuffix(found[2]) + each for each in close] if found is not None else []


def has_sasl(config: SecurityProperties, listener: str) -> bool:
    """Return whether a listener uses SASL."""
    return config.listener_security_protocol_map.get(listener, "").startswith("SASL_")


def has_tls(config: SecurityProperties, listener: str) -> bool:
    """Return whether a listener uses TLS."""
    return config.listener_security_protocol_map.get(listener, "").endswith("SSL")


def setting_value(config: SecurityProperties, listener: str, key: str, default: str = "") -> str:
    """Return the value of a setting: the listener's own, or the node's."""
    return config.given.get(f"{PREFIX}{listener.lower()}.{key}", config.given.get(key, default))


def sasl_settings(config: SecurityProperties, listener: str) -> SaslSettings:
    """Return the SASL settings of a listener. Raises ConfigError."""
    names = setting_value(config, listener, "sasl.enabled.mechanisms", DEFAULT_MECHANISM)
    mechanisms = tuple(name.strip() for name in names.split(",") if name.strip())
    for name in mechanisms:
        if name not in MECHANISMS:
            raise ConfigError(
                f"sasl.enabled.mechanisms: {name} of {listener} is not one of "
                f"{', '.join(MECHANISMS)}"
            )
    logins = {name: login_settings(config, listener, name) for name in mechanisms}
    if OAUTHBEARER in mechanisms:
        _check_tokens(config, listener, logins[OAUTHBEARER])
    return SaslSettings(
        mechanisms, logins, {name: _session_ms(config, listener, name) for name in mechanisms}
    )


def login_settings(config: SecurityProperties, listener: str, mechanism: str) -> LoginSettings:
    """Return the credentials of a mechanism on a listener. Raises ConfigError."""
    key = f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS}"
    text = config.given.get(key) or config.given.get(f"{PREFIX}{listener.lower()}.{JAAS}", "")
    if not text:
        if mechanism == PLAIN:
            raise ConfigError(f"{key} is required: it contains the users and passwords")
        if mechanism == OAUTHBEARER:
            raise ConfigError(
                f"{key} is required, at least org.apache.kafka.common.security.oauthbearer."
                "OAuthBearerLoginModule required;"
            )
        return LoginSettings()
    try:
        return parse_jaas(text)
    except ValueError as reason:
        raise ConfigError(f"{key}: {reason}") from None


def _check_tokens(config: SecurityProperties, listener: str, login: LoginSettings) -> None:
    from kraftsim.server.rules_bearer_tokens import unsecured_tokens

    prefix = f"{PREFIX}{listener.lower()}.{OAUTHBEARER.lower()}."
    validator = config.given.get(prefix + VALIDATOR, UNSECURED_VALIDATOR)
    if validator != UNSECURED_VALIDATOR:
        raise ConfigError(
            f"{prefix}{VALIDATOR}: {validator} is not implemented; without this setting the node "
            "accepts tokens without signature, for tests only"
        )
    try:
        unsecured_tokens(login.options)
    except ValueError as reason:
        raise ConfigError(f"{prefix}{JAAS}: {reason}") from None


def check_security(config: ListenerProperties) -> None:
    """Reject unusable settings. Raises ConfigError."""
    for endpoint in config.listeners:
        protocol = config.listener_security_protocol_map[endpoint.listener]
        if protocol not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {endpoint.listener} has {protocol}, expected "
                f"one of {', '.join(PROTOCOLS)}"
            )
        if (
            has_tls(config, endpoint.listener)
            and setting_value(config, endpoint.listener, "ssl.keystore.type", "JKS").upper()
            != "PEM"
        ):
            raise ConfigError(f"ssl.keystore.type: {endpoint.listener} needs a key in PEM")
        if has_sasl(config, endpoint.listener):
            sasl_settings(config, endpoint.listener)
    to_brokers = (
        config.inter_broker_listener_name,
        "sasl.mechanism.inter.broker.protocol",
        config.sasl_mechanism_inter_broker_protocol,
    )
    to_controllers = [
        (name, "sasl.mechanism.controller.protocol", config.sasl_mechanism_controller_protocol)
        for name in config.controller_listener_names[:1]
    ]
    for listener, key, mechanism in (to_brokers, *to_controllers):
        if has_sasl(config, listener) and mechanism not in LOGIN_MECHANISMS:
            raise ConfigError(
                f"{key}: {mechanism} is not one of {', '.join(LOGIN_MECHANISMS)}, with which nodes "
                "log in to each other"
            )


def _session_ms(config: SecurityProperties, listener: str, mechanism: str) -> int:
    own = f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{REAUTHENTICATION}"
    text = config.given.get(own, setting_value(config, listener, REAUTHENTICATION, "0"))
    if not text.isdecimal():
        raise ConfigError(f"{REAUTHENTICATION}: expected a whole number of 0 or more, got {text!r}")
    return int(text)


def check_listeners(config: ListenerProperties) -> None:
    if not config.listeners:
        raise ConfigError("listeners must name a listener")
    hidden = next(
        (
            name
            for name in config.controller_listener_names
            if name not in config.listener_security_protocol_map
        ),
        None,
    )
    if hidden is not None:
        raise ConfigError(WITHOUT_PROTOCOL.format(hidden))
    ports = [endpoint.port for endpoint in config.listeners if endpoint.port]
    for index, port in enumerate(ports):
        if port in ports[:index]:
            raise ConfigError(f"listeners: port {port} is given twice")
    for endpoint in config.listeners:
        protocol = config.listener_security_protocol_map.get(endpoint.listener)
        if protocol is None:
            raise ConfigError(
                f"listeners: {endpoint.listener} has no security protocol in "
                "listener.security.protocol.map"
            )
        belongs_to_controllers = endpoint.listener in config.controller_listener_names
        if not config.is_broker and not belongs_to_controllers:
            raise ConfigError(
                f"listeners: {endpoint.listener} of a controller must be in "
                "controller.listener.names"
            )
        if not config.is_controller and belongs_to_controllers:
            raise ConfigError(
                f"listeners: {endpoint.listener} of a broker must not be in "
                "controller.listener.names"
            )


def check_advertised(config: ListenerProperties, *, given: bool) -> None:
    own = [endpoint.listener for endpoint in config.listeners]
    for endpoint in config.advertised_listeners:
        if endpoint.listener not in own:
            raise ConfigError(
                f"advertised.listeners: {endpoint.listener} is not in listeners ({', '.join(own)})"
            )
        if endpoint.host in ANY_ADDRESSES or not endpoint.host:
            fix = "name a host that clients can reach" if given else "set advertised.listeners"
            raise ConfigError(
                f"advertised.listeners: {endpoint.host or 'an empty host'} of "
                f"{endpoint.listener} cannot be advertised; {fix}"
            )
    advertised = [endpoint.listener for endpoint in config.advertised_listeners]
    if config.is_broker and config.inter_broker_listener_name not in advertised:
        raise ConfigError(
            f"inter.broker.listener.name: {config.inter_broker_listener_name} is not in "
            f"advertised.listeners ({', '.join(advertised)})"
        )
