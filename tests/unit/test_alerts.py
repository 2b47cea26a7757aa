"""Alerts: each change of a stream's health is told once, whatever the receivers do and whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from email import message_from_bytes
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import forked
import psutil
import pytest
from events import row, source

from floodmark import Alert, Email, Env, Settings, Webhook, Workspace
from floodmark.control.health.alerting import Alerting
from floodmark.control.state import messages
from floodmark.control.state.messages import Message, Messages
from floodmark.control.state.records import Deployment, StreamId
from floodmark.control.state.store import CONTROL, Store
from floodmark.control.streams.fleet import Fleet
from floodmark.core import crash
from floodmark.core.errors import DefinitionError
from floodmark.core.host import birth

pytestmark = pytest.mark.clock

SECONDS = 300
DEFINITIONS = """
import sys, time
from events import row, source
from floodmark import Alert, Email, Env, Settings, Webhook, Workspace

def written(change):
    with open({folder!r} + "/written", "a") as file:
        print(change.key, change, file=file)

def hangs(change):
    time.sleep(600)

def raises(change):
    raise ValueError("no " + change.stream)

def leaves(change):
    sys.exit("out")

def workspace(environment="dev"):
    return Workspace(
        sources=[source([row(0)])],
        settings=Settings(lake="lake", engine="embedded"),
        alerts=[{alerts}],
    )
"""


class Place:
    """A workspace with alerts, whose only stream is deployed, and a supervisor's alerting."""

    def __init__(self, folder: Path, *alerts: str) -> None:
        self.folder = folder
        text = DEFINITIONS.format(folder=str(folder), alerts=", ".join(alerts))
        (folder / "pyproject.toml").write_text("[tool.floodmark]\n")
        (folder / "definitions.py").write_text(text)
        namespace: dict[str, Any] = {}
        exec(compile(text, "definitions", "exec"), namespace)  # noqa: S102 - the text above
        workspace = namespace["workspace"]().at(str(folder))
        fleet = Fleet(workspace=workspace, root=folder, say=lambda _: None)
        fleet.start(workspace.sources)
        self.store, self.home = fleet.store, fleet.home
        self.messages, self.stream = Messages(self.store), fleet.stream("events")
        self.said: list[str] = []
        self.alerting = self.another()

    def another(self) -> Alerting:
        """The alerting of the next supervisor."""
        return Alerting(self.store, self.home, self.said.append)

    @property
    def deployment(self) -> Deployment:
        return next(one for one in self.store.deployments() if one.stream == self.stream)

    def begin(self) -> int:
        """A driver that runs: this process."""
        driver = self.store.begin(self.deployment, str(self.folder))
        process = psutil.Process()
        self.store.update(driver.id, heard=True, state="running", pid=process.pid, born=birth(process))
        return driver.id

    def look(self, alerting: Alerting | None = None) -> None:
        """As soon as the last look was."""
        alerting = alerting or self.alerting
        alerting._looked = float("-inf")
        alerting.look()

    def until(self, seen: Callable[[list[Message]], bool]) -> list[Message]:
        """Look until the messages are so; oldest first."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            self.look()
            found = self.messages.of(self.stream)[::-1]
            if seen(found):
                return found
            time.sleep(0.05)
        log = self.home / "logs" / "alerts.log"
        raise AssertionError(self.messages.of(self.stream), log.read_text() if log.exists() else "")

    def await_senders(self) -> None:
        """Wait until no sender is left."""
        end = time.monotonic() + SECONDS
        while any(_sends(one, self.home) for one in psutil.process_iter(["cmdline"])):
            assert time.monotonic() < end, "a sender outlives its deadline"
            time.sleep(0.02)

    def hurry(self) -> None:
        """Let the messages that wait for another try be due now."""
        with self.store.transaction() as connection:
            from floodmark.control.state.tables import MESSAGES

            connection.execute(MESSAGES.update().values(due=0.0))

    @property
    def written(self) -> list[str]:
        file = self.folder / "written"
        return file.read_text().splitlines() if file.exists() else []


def all_in(*states: str) -> Callable[[list[Message]], bool]:
    return lambda found: bool(found) and all(one.state in states for one in found)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Place]:
    support = str(Path(__file__).parent.parent / "support")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [support, os.environ.get("PYTHONPATH")])))
    monkeypatch.setattr(messages, "_FIRST_SECONDS", 3600.0)  # until the test says so, however long a sender takes
    return lambda *alerts: Place(tmp_path, *alerts)


class Receiver:
    """A receiver of webhooks, which answers as it is told."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.answers = [500]
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.received.append((dict(self.headers.items()), body))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.mark.feature("Z7")
def test_a_change_is_told_once_to_a_webhook_and_again_with_the_same_key_until_it_is_received(
    place: Callable[..., Place], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_URL", receiver.url)
    monkeypatch.setenv("HOOK_TOKEN", "very secret")
    shop = place('Alert(Webhook(Env("HOOK_URL"), headers={"Authorization": Env("HOOK_TOKEN")}))')
    driver = shop.begin()
    shop.look()
    shop.look()
    assert shop.messages.of(shop.stream) == [], "all is well from the first"
    shop.store.end(driver, "crashed", "killed by SIGKILL")
    shop.until(lambda found: len(found) == 1 and bool(found[0].error))
    (failed,) = shop.messages.of(shop.stream)
    assert (failed.state, failed.tries, failed.error) == ("due", 1, "the receiver answered 500")
    shop.hurry()
    (sent,) = shop.until(all_in("sent"))
    assert sent.tries == 2
    shop.look(shop.another())
    shop.begin()
    shop.until(lambda found: len(found) == 2 and all_in("sent")(found))
    (first, second, third) = receiver.received
    assert first[0]["Authorization"] == "very secret"
    assert first[0]["Idempotency-Key"] == second[0]["Idempotency-Key"] != third[0]["Idempotency-Key"]
    assert first[1] == second[1]
    assert (first[1]["stream"], first[1]["level"], first[1]["condition"]) == ("events", "error", "crashed")
    assert first[1]["reason"] == "killed by SIGKILL; a supervisor starts it again"
    assert (third[1]["level"], third[1]["before"], third[1]["text"]) == ("ok", "crashed", "events: running")
    kept = b"".join(file.read_bytes() for file in shop.home.rglob("*") if file.is_file())
    assert b"very secret" not in kept
    assert receiver.url.encode() not in kept


@pytest.mark.feature("Z7")
def test_a_hook_that_hangs_raises_or_leaves_holds_up_nothing_and_is_given_up(place: Callable[..., Place]) -> None:
    patient = 'deadline="5 minutes", tries=2'  # a busy machine is no hook that hangs
    shop = place(
        'Alert(hangs, deadline="1 second", tries=2)',
        f"Alert(raises, {patient})",
        f"Alert(leaves, {patient})",
        f"Alert(written, {patient})",
    )
    shop.store.end(shop.begin(), "crashed", "EXECUTION-004 something is missing")
    shop.look()
    assert shop.alerting._children, "looking waits for nobody, who may hang for ten minutes"
    found = shop.until(lambda found: len(found) == 4 and all(one.error or one.state == "sent" for one in found))
    assert [one.state for one in found] == ["due", "due", "due", "sent"]
    shop.hurry()
    found = shop.until(all_in("sent", "given up"))
    assert [(one.state, one.tries, one.error) for one in found] == [
        ("given up", 2, "it had not ended after 1 s"),
        ("given up", 2, "ValueError: no events"),
        ("given up", 2, "SystemExit: out"),
        ("sent", 1, ""),
    ]
    (line,) = shop.written
    assert "events: crashed: EXECUTION-004 something is missing" in line
    shown = forked.run(
        [sys.executable, "-m", "floodmark.cli.main", "alerts", "--json"], env=os.environ, cwd=shop.folder
    )
    listed = json.loads(shown.stdout)["messages"]
    assert sorted((one["state"], one["tries"]) for one in listed) == [("given up", 2)] * 3 + [("sent", 1)]
    shop.await_senders()


def test_a_mail_names_the_change_and_has_its_key(place: Callable[..., Place]) -> None:
    mails: list[bytes] = []

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                if line.upper().startswith(b"DATA"):
                    self.wfile.write(b"354 go on\r\n")
                    mails.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                if line.upper().startswith(b"QUIT"):
                    self.wfile.write(b"221 over\r\n")
                    return
                self.wfile.write(b"250 well\r\n")

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"127.0.0.1:{server.server_address[1]}"
        shop = place(f'Alert(Email(to="team@example.com", sender="floodmark@example.com", server="{address}"))')
        shop.store.end(shop.begin(), "crashed", "killed by SIGKILL")
        try:
            (sent,) = shop.until(all_in("sent"))
        finally:
            server.shutdown()
            thread.join()
    mail = message_from_bytes(mails[0], policy=default)
    assert mail["Subject"] == "error: events is crashed"
    assert (mail["To"], mail["Message-ID"]) == ("team@example.com", f"<{sent.change.key}@floodmark>")
    assert "killed by SIGKILL" in mail.get_content()


SUPERVISE = """
import sys
from pathlib import Path
from floodmark.control.health.alerting import Alerting
from floodmark.control.state.store import Store
import os
Alerting(Store(os.environ["FLOODMARK_CONTROL_STORE"]), Path(sys.argv[1]), lambda _: None).look()
"""


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("alert.after_send", marks=pytest.mark.feature("Z7")),
        *(
            pytest.param(point, marks=pytest.mark.soak)
            for point in crash.POINTS["alert"]
            if point != "alert.after_send"
        ),
    ],
)
def test_a_change_is_told_whoever_is_killed_and_recorded_once(place: Callable[..., Place], point: str) -> None:
    """Killed before it has recorded that a message was received, a sender sends it again, with the same key."""
    shop = place("Alert(written)")
    shop.store.end(shop.begin(), "crashed", "killed by SIGKILL")
    env = {**os.environ, CONTROL: shop.store.url, crash.VARIABLE: point}
    died = forked.run([sys.executable, "-c", SUPERVISE, str(shop.home)], env=env, cwd=shop.folder)
    by_supervisor = point.endswith("change")
    assert died.returncode == (-signal.SIGKILL if by_supervisor else 0)
    if not by_supervisor:
        shop.await_senders()
        shop.hurry()
    (message,) = shop.until(all_in("sent"))
    shop.look(shop.another())
    assert len(shop.messages.of(shop.stream)) == 1
    lines = shop.written
    assert len(lines) == (2 if point == "alert.after_send" else 1)
    assert {line.split()[0] for line in lines} == {message.change.key}


def _sends(process: psutil.Process, home: Path) -> bool:
    words = process.info["cmdline"] or []
    return "floodmark.control.health.sender" in words and any(str(home) in word for word in words)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Alert("somebody"),  # type: ignore[arg-type]
        lambda: Alert(print, on="always"),  # type: ignore[arg-type]
        lambda: Alert(print, deadline="1 hour"),
        lambda: Alert(print, deadline="soon"),
        lambda: Alert(print, tries=0),
        lambda: Webhook("ftp://host/"),
        lambda: Webhook("https://user:word@host/hook"),
        lambda: Webhook("https://host/", headers={"Authorization": "Bearer x"}),
        lambda: Env("https://hooks.example.com/T0/B0/secret"),
        lambda: Email(to=(), sender="a@b"),
        lambda: Email(to="a@b", sender="a@b", password="word"),  # type: ignore[arg-type]  # noqa: S106 - none
        lambda: Workspace(alerts=[print]),  # type: ignore[list-item]
        lambda: Workspace(alerts=Alert(print)),  # type: ignore[arg-type]
        lambda: Workspace(sources=[source([row(0)])], alerts=[Alert(print, streams=("orders",))]),
    ],
)
def test_alerts_that_cannot_be_are_refused_when_they_are_defined(made: Callable[[], object]) -> None:
    with pytest.raises(DefinitionError, match="DEFINITION-(298|299|001)") as refused:
        made()
    assert "Bearer" not in str(refused.value)
    assert "T0" not in str(refused.value)


def test_a_workspace_keeps_its_alerts_and_none_costs_nothing(tmp_path: Path) -> None:
    alert = Alert(print, on="warning", streams="events")  # type: ignore[arg-type]
    made = Workspace(sources=[source([row(0)])], alerts=[alert], settings=Settings(lake="lake"))
    assert made.at(str(tmp_path)).alerts == (alert,)
    assert alert.tells("events", "ok", "warning")
    assert not Alert(print).tells("events", "ok", "warning")
    assert not alert.tells("orders", "ok", "error")
    store = Store(f"sqlite:///{tmp_path}/control.db")
    store.deploy(
        Deployment(operator="o", root="/", lake="/l", environment="dev", package="p", version="v", desired="running")
    )
    Alerting(store, tmp_path).look()
    assert Messages(store).last_told(StreamId("o", "/l")) is None
