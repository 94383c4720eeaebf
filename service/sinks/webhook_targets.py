"""Allowed targets of results: public addresses for webhooks, and servers that the operator allows.

A client that may add queries must not use the service to reach addresses that only the service can reach: its
machine, its network, the metadata address of a cloud.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from service.errors import InvalidSetting, SinkFailed

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: NAT64 translators (RFC 6052) forward packets for these addresses to the IPv4 address in the last 4 bytes.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
#: Further networks that are not public; old versions of Python miss some of them: translators of a private
#: network, which may have the IPv4 address at any position (RFC 8215); site-local addresses (RFC 3879); IPv4
#: addresses in IPv6 addresses, compatible (RFC 4291) and translated (RFC 2765); documentation (RFC 9637);
#: segment routing (RFC 9602); protocols (RFC 6890), including Oracle's metadata address; the address of
#: Azure's platform.
_NOT_PUBLIC: tuple[Network, ...] = (
    *map(
        ipaddress.IPv6Network,
        ("64:ff9b:1::/48", "fec0::/10", "::/96", "::ffff:0:0:0/96", "3fff::/20", "5f00::/16"),
    ),
    *map(ipaddress.IPv4Network, ("192.0.0.0/24", "168.63.129.16/32")),
)


@dataclass(frozen=True, slots=True)
class WebhookTargets:
    """Targets that are allowed in addition to public ones.

    Attributes:
        names: Host names, in lower case, allowed at any address.
        networks: Networks with allowed addresses.
        servers: Brokers and databases that sinks may write to, ``host:port``; ``*`` for any.
    """

    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()
    servers: tuple[str, ...] = ()

    @classmethod
    def of(cls, hosts: Iterable[str], servers: Iterable[str] = ()) -> WebhookTargets:
        """Return the targets that lists of names, addresses, networks and servers allow.

        Raises:
            InvalidSetting: A text looks like a network but is not one.
        """
        names, networks = set(), []
        for host in hosts:
            try:
                networks.append(ipaddress.ip_network(host.strip("[]")))
            except ValueError as error:
                if not host.replace(".", "").replace("-", "").replace("_", "").isalnum():
                    raise InvalidSetting(
                        f'setting "webhook_hosts" cannot have "{host}"',
                        detail=f"It is not a network: {error}.",
                        hint="Write names, addresses or networks with commas between them: "
                        "hooks.internal,10.1.0.0/16.",
                    ) from error
                names.add(host.lower())
        return cls(frozenset(names), tuple(networks), tuple(servers))

    def allows(self, host: str, address: Address) -> bool:
        """Return whether results may be posted to a host at an address.

        >>> private = ipaddress.ip_address("::ffff:10.0.0.1")
        >>> WebhookTargets().allows("hooks", private), WebhookTargets.of(["10.0.0.0/8"]).allows("h", private)
        (False, True)
        """
        if host.lower().rstrip(".") in self.names:
            return True
        reached = _reached(address)
        if any(reached in network for network in self.networks):
            return True
        return (
            reached.is_global
            and not reached.is_multicast
            and not any(reached in network for network in _NOT_PUBLIC)
        )

    def addresses(self, host: str, port: int, timeout_s: float) -> list[str]:
        """Resolve a host, once, and return its allowed addresses.

        Raises:
            SinkFailed: The host has no address, or none that is allowed.
        """
        found = _resolved(host, port, timeout_s)
        allowed = [text for text in found if self.allows(host, ipaddress.ip_address(text.partition("%")[0]))]
        if not allowed:
            # The error does not reveal the address, which clients outside the network must not learn.
            raise SinkFailed(
                f'"{host}" is on this machine or in a private network',
                detail="The operator can allow it in SLUICE_WEBHOOK_HOSTS.",
            )
        return allowed


#: Public addresses only.
PUBLIC_TARGETS = WebhookTargets()


def _reached(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address contains or leads to, or else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _resolved(host: str, port: int, timeout_s: float) -> list[str]:
    """Ask the system's resolver, which has no timeout, in a thread that is abandoned if it is slow."""
    answers: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            answers.put(list(dict.fromkeys(str(entry[4][0]) for entry in found)))
        except (OSError, UnicodeError) as error:  # UnicodeError: the text cannot be a host name
            answers.put(error)

    threading.Thread(target=ask, name="resolver", daemon=True).start()
    try:
        answer = answers.get(timeout=max(timeout_s, 0))
    except queue.Empty as error:
        raise SinkFailed(f'"{host}" was not resolved in time') from error
    if isinstance(answer, Exception):
        raise SinkFailed(f'"{host}" cannot be resolved: {answer}') from answer
    return answer
