"""An S3 server for tests: moto's, one per process, in threads of the process."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import boto3
from moto.server import ThreadedMotoServer

#: Of this server alone.
KEYS = {
    "AWS_ACCESS_KEY_ID": "sluice",
    "AWS_SECRET_ACCESS_KEY": "a secret of tests",
    "AWS_REGION": "us-east-1",
}
_BUCKET = "sluice-tests"


class S3Server:
    """A server on a free port of this machine.

    Attributes:
        environment: Variables with which clients reach it.
    """

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it tells of every request
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        self._server.start()
        host, port = self._server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        self.environment = {**KEYS, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            region_name=KEYS["AWS_REGION"],
        )
        self._client.create_bucket(Bucket=_BUCKET)

    def new_url(self) -> str:
        """Return the URL of a prefix that nobody uses."""
        return f"s3://{_BUCKET}/{uuid.uuid4().hex}"

    def objects(self, url: str) -> list[str]:
        """Return the names of all objects below a URL."""
        prefix = url.removeprefix(f"s3://{_BUCKET}/") + "/"
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=_BUCKET, Prefix=prefix)
        return [found["Key"].removeprefix(prefix) for page in pages for found in page.get("Contents", ())]

    def damage(self, url: str, name: str, data: bytes) -> None:
        """Replace an object."""
        key = f"{url.removeprefix(f's3://{_BUCKET}/')}/{name}"
        self._client.put_object(Bucket=_BUCKET, Key=key, Body=data)

    def stop(self) -> None:
        """End it."""
        self._server.stop()


def server() -> Iterator[S3Server]:
    """Yield a server that ends with the test session."""
    started = S3Server()
    yield started
    started.stop()
