"""Hosts and origins of requests: protection of a service without keys against pages of other sites.

A page of another site can send POST requests to ``http://127.0.0.1:8080``. In this case the browser sends the
page's ``Origin``. With DNS rebinding, the name of the page's own site resolves to 127.0.0.1. The page can
then even read the answers, and its requests have that name as ``Host``. An IP address in ``Host`` cannot be
rebound, so it is trusted. A name in ``Host`` is trusted only if it is listed.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from api.errors import ForeignOrigin, UnknownHost
from catalog.wording.outside import printable

#: Methods that change nothing; pages of other sites may link to their results.
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: A name or an address, and a port, as RFC 9110, section 7.2, without characters that no host name has.
_HOST = re.compile(
    r"(\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?))(:(?P<port>[0-9]{0,5}))?"
)


@dataclass(frozen=True, slots=True)
class Origins:
    """Rules for ``Host`` and ``Origin``.

    Attributes:
        names: Further host names of this service, in lower case.
        any_name: Whether any host name is accepted: true if requests need a key, which a browser never adds
            by itself.
        loopback: Whether the service only listens on a loopback address.
    """

    names: frozenset[str]
    any_name: bool
    loopback: bool

    def check(self, method: str, headers: list[tuple[bytes, bytes]]) -> None:
        """Refuse a request that a page of another site may have caused.

        Args:
            method: Method, upper case.
            headers: Headers in ASGI's form, with names in lower case.

        Raises:
            UnknownHost: The request does not have exactly one ``Host`` header, or the host does not belong to
                this service.
            ForeignOrigin: The request comes from a page of another host.
        """
        hosts = _values(headers, b"host")
        if len(hosts) != 1:
            raise UnknownHost(f"{len(hosts) or 'no'} Host headers", hint="Send exactly one.")
        host = hosts[0].lower()
        if not self._is_known(_name(host)):
            raise UnknownHost(
                f'host "{printable(host, 100)}" is not known here',
                detail="The name of another site may have been made to resolve to this address (DNS "
                "rebinding).",
                hint="Use the IP address, or list the name in SLUICE_ALLOWED_HOSTS.",
            )
        for origin in _values(headers, b"origin"):
            if not self._is_own(origin.lower(), host):
                raise ForeignOrigin(
                    f'origin "{printable(origin, 100)}" is foreign',
                    detail="Pages of other sites may not use this service.",
                    hint="If the origin is yours, list its host in SLUICE_ALLOWED_HOSTS.",
                )
        site = _values(headers, b"sec-fetch-site")
        if method not in _SAFE and any(value in ("cross-site", "same-site") for value in site):
            raise ForeignOrigin("the request comes from a page of another site")

    def _is_known(self, name: str) -> bool:
        if not name:
            return False
        if name in self.names:
            return True
        address = _address(name)
        if self.loopback:
            return name == "localhost" or (address is not None and address.is_loopback)
        if self.any_name:
            return not self.names or address is not None
        return name == "localhost" or address is not None

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
            return parts.scheme in ("http", "https") and (
                parts.netloc == host or _name(parts.netloc) in self.names
            )
        except ValueError:
            return False


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can only be reached from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for found, value in headers if found == name]


def _name(host: str) -> str:
    """Return a host without its port; empty if it is not a name or address, and at most a port.

    >>> _name("localhost:8080"), _name("[::1]:8080"), _name("a:b:c"), _name("127.0.0.1:1.evil.example")
    ('localhost', '::1', '', '')
    """
    match = _HOST.fullmatch(host)
    return "" if match is None or int(match["port"] or 0) > 65535 else match["v6"] or match["name"] or ""


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
