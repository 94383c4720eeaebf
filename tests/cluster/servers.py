"""Servers of others, each on a host of its own: ``python -m tests.cluster.servers NAME ...``.

    name and arguments    orders on its input
    postgres <network>    stop    start
    s3 <port>             fault none    fault refused: 503    fault slow: each request takes a second
    kafka <address>       create <topic> <partitions>         down <broker>    up <broker>
                          produce <first> <end>: events of these numbers to the topics left and right
                          read <topic>: prints the values of its messages

Each prints a line of JSON about itself once it can be used, and one when an order was followed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from threading import Thread
from typing import Any

SECOND_US = 1_000_000
SLOW_S = 1.0
BUCKET = "sluice"
_ENDING = ExitStack()


#: What a server says about itself, and what follows an order.
Started = tuple[dict[str, Any], Callable[[str], object]]


def postgres(network: str) -> Started:
    from tests.postgres import PostgresServer

    server = PostgresServer(network=network)

    def follow(order: str) -> None:
        {"stop": server.stop, "start": server.start}[order]()

    return {"port": server.port, "database": server.create(), "password": server.password}, follow


def s3(port: str) -> Started:
    import logging

    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it tells of every request
    service = DomainDispatcherApplication(create_backend_app)
    fault = "none"

    def faulty(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if fault == "refused":
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Slow Down", [("Content-Length", "0")])
            return []
        if fault == "slow":
            time.sleep(SLOW_S)
        answer: Iterable[bytes] = service(environ, start_response)
        return answer

    server = make_server("0.0.0.0", int(port), faulty, threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}").create_bucket(Bucket=BUCKET)

    def follow(order: str) -> None:
        nonlocal fault
        _, fault = order.split()

    return {}, follow


def kafka(address: str) -> Started:
    from tests.service.kafka.brokers import brokers
    from tests.service.kafka.secure_front import secured
    from tests.service.kafka.test_topic_sink import messages_in
    from tests.service.kafka.test_topics import event

    made = _ENDING.enter_context(brokers())
    bootstrap = _ENDING.enter_context(secured(made.bootstrap, address=address))

    def follow(order: str) -> object:
        match order.split():
            case ["produce", first, end]:
                for number in range(int(first), int(end)):
                    time_us = number * SECOND_US
                    made.produce("left", [event(time_us, number, number % 2)])
                    made.produce("right", [event(time_us, number)])
            case ["read", topic]:
                return [json.loads(message.value()) for message in messages_in(made, topic)]
            case words:
                made.tell(*words)
        return None

    return {"bootstrap": bootstrap}, follow


def main() -> None:
    name, *arguments = sys.argv[1:]
    with _ENDING:
        facts, follow = {"postgres": postgres, "s3": s3, "kafka": kafka}[name](*arguments)
        print(json.dumps(facts), flush=True)
        for line in sys.stdin:
            print(json.dumps(follow(line.strip())), flush=True)


if __name__ == "__main__":
    main()
