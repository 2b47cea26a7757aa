"""The server of the embedded engine: its life, its death, and that nothing of it is left."""

import math
import os
import signal
import socketserver
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grpc import _common
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from floodmark.core.errors import SetupError
from floodmark.engines.embedded.sail import child
from floodmark.engines.embedded.sail import server as of_server
from floodmark.engines.embedded.sail import session as of_session
from floodmark.engines.embedded.sail.prepared import Query
from floodmark.engines.embedded.sail.session import Connection, Sail, ServerLost, on_sail, shared
from floodmark.engines.embedded.sail.shared import SharedServer
from floodmark.engines.frames.messages import text_of


def _one(sail: Sail) -> tuple[int, int]:
    """The server's number and process, after a query."""
    with sail.lent() as connection:
        assert connection.spark.sql("SELECT 1 AS x").toArrow()["x"].to_pylist() == [1]
        return connection.number, connection.server.pid


def _killed(pid: int, query: DataFrame) -> None:
    os.kill(pid, signal.SIGKILL)
    query.toArrow()


def _ended(pid: int) -> None:
    try:
        psutil.Process(pid).wait(60)
    except psutil.NoSuchProcess:
        return


def test_a_server_that_is_killed_costs_its_work_a_retry_and_nothing_else():
    sail = Sail(400)
    try:
        first, pid = _one(sail)
        with sail.lent() as connection:
            query = connection.spark.sql("SELECT 1")
        with pytest.raises(ServerLost, match="signal 9"), sail.lent():
            _killed(pid, query)
        second, other = _one(sail)
        assert (first, second) == (1, 2) and other != pid
        os.kill(other, signal.SIGKILL)  # between two pieces of work nobody notices
        psutil.Process(other).wait(60)
        assert _one(sail)[0] == 3
    finally:
        sail.close()


@pytest.mark.parametrize("call", ["schema", "toArrow"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_an_answer_that_its_client_cannot_read_costs_a_retry(monkeypatch, call: str, times: int):
    """Of a single answer, and of a stream of them; the third loss in a row is an error that says what was lost."""
    sail, lost, read = Sail(400), [], _common.deserialize

    def asked(connection: Connection) -> object:
        frame = connection.spark.sql("SELECT 1 AS x")
        monkeypatch.setattr(_common, "deserialize", garbled)
        rows = frame.schema.names if call == "schema" else frame.toArrow()["x"].to_pylist()
        assert len(lost) == times
        return rows

    def garbled(message: bytes, deserializer: object) -> object:
        if len(lost) == times:
            return read(message, deserializer)
        lost.append(message)
        monkeypatch.setattr(_common, "deserialize", read)  # of the pieces that the client asks for after it
        return None

    try:
        if times < 3:
            assert on_sail(sail, asked) == (["x"] if call == "schema" else [1])
        else:
            with pytest.raises(ServerLost, match="an answer that gRPC could not read while it was used"):
                on_sail(sail, asked)
        assert sail.started == 1
    finally:
        sail.close()


def test_what_grpc_says_is_told_by_its_details():
    error = PySparkException(
        '<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.INTERNAL\n\tdetails = "no answer"\n\tdebug_error_string = "None"\n>'
    )
    assert text_of(error) == "no answer (gRPC INTERNAL)"


@pytest.mark.parametrize("listens", [False, True])
def test_a_server_that_is_killed_before_it_has_a_session_costs_a_retry(monkeypatch, listens):
    killed, connect = [], of_session._connected

    def dying(server):
        if not killed:
            killed.append(server.port if listens else server.pid)
            os.kill(server.pid, signal.SIGKILL)
        return connect(server)

    monkeypatch.setattr(of_session, "_connected", dying)
    sail = Sail(400)
    try:
        assert on_sail(sail, lambda connection: connection.number) == 2
    finally:
        sail.close()


def test_a_server_that_dies_as_it_starts_ahead_is_started_again_beside_the_one_in_use(monkeypatch):
    killed, connect = [], of_session._connected

    def dying(server):
        if sail.started == 2 and not killed:
            killed.append(server.pid)
            os.kill(server.pid, signal.SIGKILL)
        return connect(server)

    monkeypatch.setattr(of_session, "_connected", dying)
    sail = Sail(400, most_uses=4)
    try:
        numbers = [_one(sail)[0]]
        while numbers[-1] == 1:
            numbers.append(_one(sail)[0])
        assert (numbers[-1], len(killed)) == (3, 1)
    finally:
        sail.close()


def test_a_server_is_replaced_after_its_uses_and_never_under_a_user():
    sail = Sail(400, most_uses=4)
    try:
        held, release, found = threading.Event(), threading.Event(), []

        def hold() -> None:
            with sail.lent() as connection:
                held.set()
                release.wait(600)
                found.append(connection.spark.sql("SELECT 7 AS x").toArrow()["x"].to_pylist())
                found.append(connection.server.pid)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(600)
        numbers = {_one(sail)[0]}
        while 2 not in numbers:
            numbers.add(_one(sail)[0])
        release.set()
        thread.join(60)
        assert found[0] == [7]
        _ended(found[1])
        assert sail.started >= 2
    finally:
        sail.close()


@pytest.mark.parametrize("fails", [False, True], ids=["prepared", "that fails while it is prepared"])
def test_a_query_is_prepared_for_the_next_server_before_that_is_used(fails: bool):
    makers, rows = list[str](), pa.table({"x": [1, 2, 3]})

    def framing(frames):
        makers.append(threading.current_thread().name)
        if fails and len(makers) == 2:
            raise PySparkException("not now")
        return frames["rows"].selectExpr("sum(x) AS x")

    query, sail, own = Query(framing), Sail(400, most_uses=4), threading.current_thread().name
    try:
        number = 1
        while number == 1:
            with sail.lent() as connection:
                assert query.rows(connection, {"rows": rows})["x"].to_pylist() == [6]
                number = connection.number
        assert makers == [own, "sail-ahead"] + [own] * fails
        del query  # what nobody asks any more is not prepared
        while number == 2:
            number = _one(sail)[0]
        assert len(makers) == 2 + fails
    finally:
        sail.close()


def test_a_session_that_nobody_has_used_for_a_while_goes_on(monkeypatch):
    """Sail ends sessions that are not used for 15 minutes, or as long as a variable says: here a second."""
    monkeypatch.setenv("SAIL_SPARK__SESSION_TIMEOUT_SECS", "1")
    sail = Sail(400)
    try:
        with sail.lent() as connection:
            first = connection.spark
            assert first.sql("SELECT 1 AS x").toArrow()["x"].to_pylist() == [1]
        threading.Event().wait(3)  # nothing tells of the end of a session but its use
        with sail.lent() as connection:
            assert connection.spark is first
            assert first.sql("SELECT 2 AS x").toArrow()["x"].to_pylist() == [2]
    finally:
        sail.close()


@contextmanager
def _taken(port: int = 0, says: bytes = b"") -> Iterator[int]:
    """A port of somebody else, who says something to whoever comes and hangs up."""

    class Says(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(says)

    class Reused(socketserver.TCPServer):
        allow_reuse_address = True

    with Reused(("127.0.0.1", port), Says) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield listener.server_address[1]
        finally:
            listener.shutdown()
            thread.join(60)


def test_a_server_whose_port_is_taken_as_it_binds_is_started_again_on_another(tmp_path: Path, monkeypatch):
    program, real, starts = tmp_path / "child.py", of_server.command, []

    def command(*arguments: str) -> list[str]:
        starts.append(arguments)
        return [sys.executable, str(program), *arguments] if len(starts) <= refused else real(*arguments)

    monkeypatch.setattr(of_server, "command", command)
    with _taken() as port:
        program.write_text(Path(child.__file__).read_text("utf-8").replace("port=0", f"port={port}"))
        sail, refused = Sail(400), 1
        try:
            assert on_sail(sail, lambda connection: connection.server.port) != port
        finally:
            sail.close()
        starts.clear()
        never, refused = Sail(400), 3
        with pytest.raises(
            ServerLost, match=r"EXECUTION-070 .*exit code 1 before it listened: .*Address already in use"
        ):
            on_sail(never, lambda connection: connection.number)
        assert len(starts) == 3


def test_a_server_that_died_and_whose_port_somebody_else_has_costs_a_retry():
    sail = Sail(400)
    tries = []

    def work(connection: Connection) -> list[int]:
        tries.append(connection.number)
        query = connection.spark.sql("SELECT 1 AS x")
        if len(tries) > 1:
            return query.toArrow()["x"].to_pylist()
        os.kill(connection.server.pid, signal.SIGKILL)
        connection.server.process.wait(60)
        with _taken(connection.server.port, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"):
            query.toArrow()
        raise AssertionError

    try:
        assert on_sail(sail, work) == [1]
        assert tries == [1, 2]
    finally:
        sail.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.few(1)
def test_no_server_outlives_its_process(how):
    program = """
        import sys
        from floodmark.engines.embedded.sail.session import Sail
        sail = Sail(400)
        with sail.lent() as connection:
            print(connection.server.pid, flush=True)
            sys.stdin.read()
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(how)
    parent.wait(60)
    child.wait(60)
    assert not child.is_running()
    parent.stdin.close()
    parent.stdout.close()


@pytest.mark.parametrize("times", [200, pytest.param(800, marks=pytest.mark.soak)])
def test_a_process_that_uses_the_server_can_start_java(times):
    """PySpark forks for Java, and the client's threads must not go on in the child: one of a few hundred died of it."""
    program = """
        import os, subprocess, sys
        from floodmark.engines.embedded.sail.session import Sail
        sail = Sail(400)
        with sail.lent() as connection:
            connection.spark.sql("SELECT 1").toArrow()
        children = [subprocess.run(["true"], preexec_fn=os.getpid, capture_output=True) for _ in range(int(sys.argv[1]))]
        sail.close()
        print({(child.returncode, child.stderr.decode()) for child in children})
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(times)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "{(0, '')}\n"


@pytest.mark.parametrize(("found", "code"), [({"pysail": None}, "SETUP-070"), ({"pysail": "0.6.6"}, "SETUP-071")])
def test_what_is_not_installed_is_said_with_the_command(monkeypatch, found, code):
    real = of_server._version
    monkeypatch.setattr(of_server, "_version", lambda name: found.get(name, real(name)))
    with pytest.raises(SetupError, match=r"pip install pysail==") as error:
        Sail()
    assert error.value.code == code


def test_a_column_of_nan_and_one_number_is_read_as_it_is(tmp_path: Path) -> None:
    """Statistics of Parquet leave NaN out, so that such a column looks like a constant, and like one of small numbers."""
    rows = pa.table({"value": [math.nan, 2.5, math.nan], "single": pa.array([1.0, math.nan, 1.0], pa.float32())})
    pq.write_table(rows, tmp_path / "rows.parquet", write_page_index=True)

    def read(connection: Connection, condition: str) -> list[str]:
        frame = connection.spark.read.parquet(str(tmp_path))
        return [repr(tuple(row)) for row in frame.filter(condition).collect()]

    assert on_sail(shared(300), lambda one: read(one, "true")) == ["(nan, 1.0)", "(2.5, nan)", "(nan, 1.0)"]
    for condition in ("value > 5.0D", "value = CAST('NaN' AS double)", "NOT value <= 2.5D", "value <> 2.5D"):
        assert on_sail(shared(300), lambda one, condition=condition: read(one, condition)) == ["(nan, 1.0)"] * 2, (
            condition
        )


def test_a_server_with_other_variables_ends_though_the_next_one_does_not_start(monkeypatch):
    sail, connect = Sail(300), of_session._connected
    try:
        number, pid = _one(sail)
        monkeypatch.setenv("AWS_REGION", "elsewhere")
        monkeypatch.setattr(of_session, "_connected", _refused)
        with pytest.raises(OSError, match="no server"):
            _one(sail)
        _ended(pid)
        assert not psutil.pid_exists(pid)
        monkeypatch.setattr(of_session, "_connected", connect)
        assert _one(sail)[0] == number + 2
    finally:
        sail.close()


def _refused(_: object) -> None:
    message = "no server"
    raise OSError(message)


def test_processes_that_reach_the_store_with_other_variables_have_a_server_of_their_own(tmp_path: Path):
    servers = list[SharedServer]()

    def shared_by(key: str) -> SharedServer:
        servers.append(SharedServer(tmp_path, 300, variables=(("AWS_SECRET_ACCESS_KEY", key),)))
        return servers[-1]

    try:
        before = shared_by("old")
        assert shared_by("old").named == before.named
        assert shared_by("new").named != before.named
        assert not before.replaced
        assert not [path for path in tmp_path.iterdir() if "new" in path.name or "old" in path.name]
        os.kill(before.pid, signal.SIGKILL)
        _ended(before.pid)
        shared_by("newer")
        assert len([*tmp_path.glob("server-*.json")]) == 2
    finally:
        for server in servers:
            server.close()
