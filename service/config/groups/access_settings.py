"""Settings of access: who may use the service."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ValidationInfo, field_validator

from service.config.groups.setting_group import SettingGroup


def _names(value: object) -> object:
    """Split a variable's text into names at its commas."""
    return (
        tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value
    )


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class AccessSettings(SettingGroup):
    """Access to the service.

    Attributes:
        insecure: Whether the service may listen on a non-loopback address without asking for a key.
        require_keys: Whether the service asks for a key on a loopback address, too, as needed behind a proxy.
        allowed_hosts: Further host names of this service that ``Host`` and ``Origin`` may contain, with
            commas between them.
        trusted_proxies: Addresses and networks of trusted proxies, with commas between them. The headers
            ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are ignored from other addresses.
        tls_cert: Certificate chain of the service, PEM; with it the API speaks TLS.
        tls_key: Private key of the certificate, PEM; None if the certificate's file contains the key.
        tls_client_ca: CA certificates for client certificates, PEM; if set, a client must have a certificate.
        oidc_issuer: URL of the issuer whose tokens are accepted; None accepts no tokens.
        oidc_audience: Name of this service in the tokens.
    """

    insecure: bool = False
    require_keys: bool = False
    allowed_hosts: Names = ()
    trusted_proxies: Names = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    oidc_issuer: str | None = None
    oidc_audience: str = "sluice"

    @field_validator("trusted_proxies")
    @classmethod
    def _are_addresses(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ipaddress.ip_network(proxy)  # raises an error that says what is wrong with the address
        return proxies

    # A validator of fields, not of the whole model, so that its error names the setting.
    @field_validator("tls_key", "tls_client_ca")
    @classmethod
    def _goes_with_a_certificate(cls, file: Path | None, others: ValidationInfo) -> Path | None:
        if file is not None and others.data.get("tls_cert") is None:
            raise ValueError("Also set tls_cert, the file of the service's certificate")
        return file

    @field_validator("oidc_issuer")
    @classmethod
    def _is_private(cls, issuer: str | None) -> str | None:
        if issuer is not None:
            parts = urlsplit(issuer)
            near = parts.hostname in ("localhost", "127.0.0.1", "::1")
            if parts.scheme != "https" and not (parts.scheme == "http" and near):
                raise ValueError("Give an issuer with https")
        return issuer
