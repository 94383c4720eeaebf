"""Webhook signatures (standardwebhooks.com), with which a receiver verifies the sender.

webhook-id: sluice-17-42.0                     the request's Idempotency-Key
webhook-timestamp: 1767225600                  seconds since 1970: distinguishes old requests from new ones
webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIK... base64 of HMAC-SHA256 of "<id>.<timestamp>.<body>"
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

_PREFIX = "whsec_"


def signing_key(secret: str) -> bytes:
    """Return the key that a secret encodes.

    >>> signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").hex()[:8]
    '31f290f6'

    Raises:
        ValueError: The text is not a secret.
    """
    if not secret.startswith(_PREFIX):
        raise ValueError(f"it does not begin with {_PREFIX}")
    return base64.b64decode(secret[len(_PREFIX) :], validate=True)


def signature_headers(secret: str, message_id: str, timestamp_s: int, body: bytes) -> Mapping[str, str]:
    """Return the headers that sign a request.

    >>> secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    >>> body = b'{"test": 2432232314}'
    >>> headers = signature_headers(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    >>> headers["webhook-signature"]
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    digest = hmac.new(signing_key(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
