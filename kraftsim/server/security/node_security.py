"""The security configuration of a node's connections, in both directions, created once from its
properties.

Source: org.apache.kafka.common.network.ChannelBuilders, kafka.server.KafkaConfig.
"""

from collections.abc import Callable
from ssl import SSLContext
from typing import TYPE_CHECKING

from kraftsim.metadata.rules_registries import Registries
from kraftsim.releases.release import release
from kraftsim.releases.traits import DECODES_TOKENS_AS_BASE64URL
from kraftsim.server.rules_authentication import (
    OAUTHBEARER,
    PLAIN,
    SCRAM_MECHANISMS,
    ClientExchange,
    Credential,
    PlainClient,
    PlainServer,
    ScramClient,
    ScramServer,
    ServerExchange,
    draw_nonce,
)
from kraftsim.server.rules_authorization import Authorizer
from kraftsim.server.security.listener_settings import (
    SaslSettings,
    has_sasl,
    has_tls,
    login_settings,
    sasl_settings,
)
from kraftsim.server.security.login import LinkSecurity
from kraftsim.server.security.tls import client_context, server_context

if TYPE_CHECKING:
    from kraftsim.server.config import NodeConfig


class Accounts:
    """The credentials of clients; `scram` looks up a user and mechanism number."""

    def __init__(
        self,
        draw: Callable[[int], int],
        scram: Callable[[str, int], Credential | None],
        *,
        is_base64url: bool = True,
    ) -> None:
        self.draw = draw
        self.scram = scram
        self._is_base64url = is_base64url

    def exchange(
        self, settings: SaslSettings, mechanism: str, wall_ms: Callable[[], int]
    ) -> ServerExchange:
        """Start the authentication of a client. `wall_ms` is the clock that tokens are compared
        with, in milliseconds since 1970.
        """
        if mechanism == PLAIN:
            return PlainServer(settings.logins[mechanism].passwords)
        if mechanism == OAUTHBEARER:
            return self._bearer_exchange(settings, wall_ms)
        number = SCRAM_MECHANISMS[mechanism]
        return ScramServer(mechanism, lambda user: self.scram(user, number), draw_nonce(self.draw))

    def _bearer_exchange(
        self, settings: SaslSettings, wall_ms: Callable[[], int]
    ) -> ServerExchange:
        from kraftsim.server.rules_bearer_tokens import OAuthBearerServer, unsecured_tokens

        rules = unsecured_tokens(
            settings.logins[OAUTHBEARER].options, is_base64url=self._is_base64url
        )
        return OAuthBearerServer(lambda token: rules.check(token, wall_ms()))


class NodeSecurity:
    """Accounts for incoming connections, credentials for outgoing ones. `draw_of`
    returns a source of random bits for a purpose.
    """

    def __init__(
        self, config: "NodeConfig", draw_of: Callable[[str], Callable[[int], int]]
    ) -> None:
        self._config = config
        self._draw_of = draw_of
        self._draw_nonce: Callable[[int], int] | None = None
        self.registries: Callable[[], Registries] = _nothing_known
        """The registries of the metadata log, once the node has loaded it."""
        self.accounts = Accounts(
            self._draw,
            lambda user, mechanism: self.registries().scram_credentials.get((user, mechanism)),
            is_base64url=release(config.release).has(DECODES_TOKENS_AS_BASE64URL),
        )
        self.authorizer = (
            Authorizer(
                config.super_users,
                allows_without_rules=config.allow_everyone_if_no_acl_found,
                registries=lambda: self.registries(),
            )
            if config.authorizer_class_name
            else None
        )
        self._sasl: dict[str, SaslSettings] = {}
        self._links: dict[str, LinkSecurity | None] = {}

    def tls_of(self, listener: str) -> SSLContext | None:
        """Return the TLS context of a listener, None if it has none. Raises ConfigError."""
        return server_context(self._config, listener) if has_tls(self._config, listener) else None

    def sasl_of(self, listener: str) -> SaslSettings | None:
        """Return the SASL settings of a listener; None if its clients do not authenticate."""
        if not has_sasl(self._config, listener):
            return None
        settings = self._sasl.get(listener)
        if settings is None:
            settings = self._sasl[listener] = sasl_settings(self._config, listener)
        return settings

    @property
    def to_brokers(self) -> LinkSecurity | None:
        """The security of connections to other brokers."""
        return self._link(
            self._config.inter_broker_listener_name,
            self._config.sasl_mechanism_inter_broker_protocol,
        )

    @property
    def to_controllers(self) -> LinkSecurity | None:
        """The security of connections to controllers."""
        return self._link(
            self._config.controller_listener_names[0],
            self._config.sasl_mechanism_controller_protocol,
        )

    def _link(self, listener: str, mechanism: str) -> LinkSecurity | None:
        if listener not in self._links:
            tls = (
                client_context(self._config, listener) if has_tls(self._config, listener) else None
            )
            if has_sasl(self._config, listener):
                self._links[listener] = LinkSecurity(
                    tls, mechanism, self._login(listener, mechanism)
                )
            else:
                self._links[listener] = None if tls is None else LinkSecurity(tls)
        return self._links[listener]

    def _login(self, listener: str, mechanism: str) -> Callable[[], ClientExchange]:
        login = login_settings(self._config, listener, mechanism)
        if mechanism == PLAIN:
            return lambda: PlainClient(login.username, login.password)
        return lambda: ScramClient(
            mechanism, login.username, login.password, draw_nonce(self._draw)
        )

    def _draw(self, bits: int) -> int:
        if self._draw_nonce is None:
            self._draw_nonce = self._draw_of("sasl nonces")
        return self._draw_nonce(bits)


_NOTHING = Registries(dict)


def _nothing_known() -> Registries:
    return _NOTHING
