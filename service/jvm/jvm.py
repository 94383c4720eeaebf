"""Spark's JVM as a process: it is launched before everything else, and connected once PySpark is imported.

    launch ─┬─ spark-submit ── JVM ── gateway ─┐
            ├─ fork server                     │
            └─ imports of the API and PySpark ─┴─ connect

The branches run at the same time and take about two seconds each. The fork server is for Spark's Python
processes. This module does not import PySpark, because the JVM would then start only after that import. The
JVM and the fork server end when their stdin is closed, so they do not outlive this process.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from service.config.settings import SparkSettings
from service.jvm.class_archive import archive_file, archive_options, spark_home
from service.jvm.java import use_java, write_script
from service.jvm.python_launcher import FORK_SERVER
from service.jvm.spark_configuration import spark_configuration

log = logging.getLogger(__name__)

#: Spark's setting of default options of the JVM. Spark adds the options of the user to them.
DEFAULT_OPTIONS = "spark.driver.defaultJavaOptions"
#: Seconds that a JVM may take to end after its stdin was closed.
END_TIMEOUT_S = 30
#: Seconds between two checks for the file with the JVM's address.
LOOK_S = 0.02


@dataclass(slots=True)
class Jvm:
    """A JVM that is starting or running.

    Attributes:
        process: Process of the JVM.
        configuration: Spark's configuration, which may contain passwords.
        directory: Directory of the file with the JVM's address, and of the fork server's socket.
        log_file: File for the output of the JVM and the fork server.
        fork_server: Process that forks Spark's Python processes, or None until it is started.
    """

    process: subprocess.Popen[bytes]
    configuration: Mapping[str, str] = field(repr=False)
    directory: Path
    log_file: Path
    fork_server: subprocess.Popen[bytes] | None = None

    def start_fork_server(self) -> None:
        """Start the fork server if it was not started. It accepts connections now, and answers once ready.

        Call this method before the session starts, because Spark otherwise starts its Python processes
        without the fork server. But do other work for which the start of the JVM leaves time first, because
        the fork server takes 1.6 s of a core.
        """
        if self.fork_server is not None:
            return
        with socket.socket(socket.AF_UNIX) as listener, self.log_file.open("ab") as output:
            try:
                listener.bind(str(_fork_server_address(self.directory)))
            except OSError as error:  # for example, a socket's path has more than 107 bytes
                log.debug("Spark starts its Python processes itself: %s", error)  # which is only slower
                return
            listener.listen()
            self.fork_server = subprocess.Popen(
                [sys.executable, "-m", "service.job.workers.fork_server", str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                # Spark sets the same values for its workers: a task has one core, and hashes of texts must be
                # the same in all workers.
                env={"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"} | os.environ,
                pass_fds=[listener.fileno()],
                preexec_fn=_ignore_interrupt,
            )

    def address(self) -> dict[str, str]:
        """Wait until the JVM accepts connections, and return its address as PySpark's environment variables.

        The address can be read only once.

        Raises:
            ConnectionError: The JVM has ended.
        """
        file = _address_file(self.directory)
        # The file is complete as soon as it exists, because the JVM renames it into place.
        while not file.exists():
            if self.process.poll() is not None:
                raise ConnectionError("the JVM has ended at its start; see spark.log")
            time.sleep(LOOK_S)
        data = file.read_bytes()
        file.unlink()  # because it contains a secret
        port, length = struct.unpack_from(">ii", data)
        secret = data[8 : 8 + length].decode()
        return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}

    def kill(self) -> None:
        """Kill the JVM; its Python processes end with it."""
        self.process.kill()

    def end(self) -> None:
        """End the JVM and the fork server, and wait until both have ended."""
        processes = (self.process, *((self.fork_server,) if self.fork_server else ()))
        for process in processes:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        for process in processes:
            try:
                process.wait(timeout=END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def launch(spark: SparkSettings, log_file: Path) -> Jvm:
    """Start a JVM with Spark in it, and return without waiting for it.

    Args:
        spark: Master, memory and further configuration.
        log_file: File for the output of the JVM and its Python processes.

    Raises:
        JavaMissing: No Java 17 or newer is found.
        UserUnknown: The system has no name for the user of this process.
    """
    java_home, home = use_java(), spark_home()
    archive = archive_options(archive_file(java_home, home), spark)
    options = {DEFAULT_OPTIONS: archive} if archive else {}
    configuration = spark_configuration(spark)
    directory = Path(tempfile.mkdtemp(prefix="sluice-jvm-"))
    properties = directory / "spark.properties"
    properties.write_text(properties_text(options | configuration), encoding="ascii")
    command = [str(home / "bin" / "spark-submit"), "--properties-file", str(properties)]
    command.append("--load-spark-defaults")  # so that the properties file does not replace them
    command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    # Workers must run this interpreter, because other interpreters lack the packages of its environment.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = _python(spark.master)
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(_address_file(directory)),
        FORK_SERVER: str(_fork_server_address(directory)),
    }
    if spark.one_machine:
        # Without this variable, Spark's web page listens on all addresses, even if the driver does not.
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with log_file.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            preexec_fn=_ignore_interrupt,
        )
    return Jvm(process, configuration, directory, log_file)


def properties_text(properties: Mapping[str, str]) -> str:
    r"""Return Spark's configuration as a Java properties file, in ASCII.

    The configuration may contain passwords. So it is passed in a file that other users cannot read, not on
    the command line.

    >>> print(properties_text({"spark.a": "x = é"}), end="")
    spark.a=x = \u00e9
    """
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(text: str) -> str:
    r"""Escape the characters that are special in a properties file, as UTF-16 units (``\uXXXX``)."""
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    return "".join(chr(u) if _stands_for_itself(chr(u)) else f"\\u{u:04x}" for u in units)


def _stands_for_itself(character: str) -> bool:
    return character.isascii() and character.isprintable() and character not in "\\"


@contextmanager
def launched(spark: SparkSettings, log_file: Path) -> Iterator[Jvm]:
    """Launch a JVM for a block, and end it after the block; raises as ``launch``."""
    jvm = launch(spark, log_file)
    try:
        yield jvm
    finally:
        jvm.end()


def _python(master: str) -> str:
    """Return the program that Spark starts as Python: our launcher or, on a cluster, the interpreter."""
    if not master.startswith("local"):
        return sys.executable
    script = Path(sys.prefix) / "share" / "sluice" / "bin" / "python"
    launcher = Path(__file__).with_name("python_launcher.py")
    python = shlex.quote(sys.executable)
    text = (
        "#!/bin/sh\n# Made by service/jvm/jvm.py.\n"
        f'exec {python} -I -S {shlex.quote(str(launcher))} {python} "$@"\n'
    )
    try:
        write_script(script, text)
    except OSError as error:
        log.debug("Spark starts its Python processes itself: %s", error)  # which is only slower
        return sys.executable
    return str(script)


def _fork_server_address(directory: Path) -> Path:
    return directory / "fork-server"


def _address_file(directory: Path) -> Path:
    return directory / "address"


def _ignore_interrupt() -> None:
    """Ignore Ctrl-C in a child process, because the service handles it and stops the job before the JVM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
