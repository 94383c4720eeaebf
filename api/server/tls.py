"""Connections: TLS, and the name in the client's certificate, which the guard uses as the sender."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.errors import UnusableCertificate
from service.config.groups.access_settings import AccessSettings


class NamedConnection(HttpToolsProtocol):
    """Connection that stores the name from the client's certificate in ``state.client_certificate``."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Read the client's certificate if it has sent one; TLS has already verified it."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert()
        if certificate:
            self.app_state = {**self.app_state, "client_certificate": _common_name(certificate)}


def tls_options(access: AccessSettings) -> dict[str, Any]:
    """Return uvicorn's options for TLS, or no options if no certificate is configured.

    Raises:
        UnusableCertificate: A file cannot be read, is not a certificate or key, or does not match the other
            files.
    """
    if access.tls_cert is None:
        return {}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(access.tls_cert, access.tls_key)
        if access.tls_client_ca is not None:
            context.load_verify_locations(access.tls_client_ca)
    except OSError as error:  # an SSLError is an OSError
        files = [access.tls_cert, access.tls_key, access.tls_client_ca]
        raise UnusableCertificate(
            "the certificates cannot be used",
            detail=f"{', '.join(str(file) for file in files if file is not None)}: {error}.",
            hint="Give PEM files: --tls-cert with the certificate chain, and --tls-key with its private key, "
            "without a password.",
        ) from error
    return {
        "ssl_certfile": access.tls_cert,
        "ssl_keyfile": access.tls_key,
        "ssl_ca_certs": None if access.tls_client_ca is None else str(access.tls_client_ca),
        "ssl_cert_reqs": ssl.CERT_NONE if access.tls_client_ca is None else ssl.CERT_REQUIRED,
    }


def _common_name(certificate: Mapping[str, Any]) -> str:
    """Return the common name in the output of ``getpeercert``; without one, the serial number.

    >>> _common_name({"subject": ((("organizationName", "Ops"),), (("commonName", "ann"),))})
    'ann'
    """
    parts = [part for group in certificate.get("subject", ()) for part in group]
    named = [str(value) for name, value in parts if name == "commonName"]
    return named[0] if named else f"certificate {certificate.get('serialNumber', '')}"
