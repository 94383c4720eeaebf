"""Spark's JVM as a process: started first of all, connected to once Python has loaded what talks to it.

    launch ─┬─ spark-submit ── JVM ── gateway ─┐
            └─ imports of the API and PySpark ─┴─ connect

Each takes about two seconds. Do not import PySpark here: the JVM would start after that import. The JVM ends
when its stdin is closed, so it does not outlive this process.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from service.config.settings import Settings
from service.jvm.java import use_java
from service.jvm.spark_configuration import spark_configuration
from service.jvm.spark_home import archive_options, spark_home

#: Options of the JVM that its own settings come on top of.
DEFAULT_OPTIONS = "spark.driver.defaultJavaOptions"
#: How long a JVM may take to end by itself.
END_TIMEOUT_S = 30
#: How often the file with the JVM's address is looked for.
LOOK_S = 0.02


@dataclass(slots=True)
class Jvm:
    """A JVM that starts, or has started.

    Attributes:
        process: Its process.
        directory: Where it writes its address.
    """

    process: subprocess.Popen[bytes]
    directory: Path

    def address(self) -> dict[str, str]:
        """Wait until it can be talked to and return the variables that tell PySpark how; asked once.

        Raises:
            ConnectionError: It has ended.
        """
        file = _address_file(self.directory)
        # The file appears whole: the JVM renames it into place.
        while not file.exists():
            if self.process.poll() is not None:
                raise ConnectionError("the JVM has ended at its start; see spark.log")
            time.sleep(LOOK_S)
        data = file.read_bytes()
        file.unlink()  # there is a secret in it
        port, length = struct.unpack_from(">ii", data)
        secret = data[8 : 8 + length].decode()
        return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}

    def end(self) -> None:
        """End it, if it has not ended, and wait for that."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def launch(settings: Settings, log_file: Path) -> Jvm:
    """Start a JVM with Spark in it and return at once.

    Args:
        settings: Master, memory and further configuration.
        log_file: Where the JVM and its Python processes write what they have to say.

    Raises:
        JavaMissing: No Java 17 or newer is found.
    """
    home = spark_home(settings.master, use_java())
    command = [str(home / "bin" / "spark-submit")]
    archive = archive_options(home, settings)
    options = {DEFAULT_OPTIONS: archive} if archive else {}
    for name, value in (options | spark_configuration(settings)).items():
        command += ["--conf", f"{name}={value}"]
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    directory = Path(tempfile.mkdtemp(prefix="sluice-jvm-"))
    # Workers must be this interpreter, or they miss the packages of its environment.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(_address_file(directory)),
    }
    with log_file.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            preexec_fn=_ignore_interrupt,
        )
    return Jvm(process, directory)


@contextmanager
def launched(settings: Settings, log_file: Path) -> Iterator[Jvm]:
    """Launch a JVM and end it with the block, used or not; raises as ``launch``."""
    jvm = launch(settings, log_file)
    try:
        yield jvm
    finally:
        jvm.end()


def _address_file(directory: Path) -> Path:
    return directory / "address"


def _ignore_interrupt() -> None:
    """Ctrl-C is the service's, which stops the job before its JVM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
