"""The sender: a process that sends one message of an alert, and is over at its deadline whatever the receiver does. A supervisor starts it."""

from __future__ import annotations

import json
import os
import signal
import smtplib
import sys
import threading
import traceback
import urllib.error
import urllib.request
from dataclasses import asdict
from email.message import EmailMessage
from pathlib import Path

from floodmark.control.processes.package import load
from floodmark.control.state.messages import Message, Messages
from floodmark.control.state.store import CONTROL, Store
from floodmark.core import crash
from floodmark.spec.assets.alert import Alert, Email, Text, Webhook

_LOADING_SECONDS = 30.0
"""Longest time in which the workspace is loaded, before the deadline of the alert begins."""


class _SecretError(Exception):
    """A secret that is not there."""


def main(number: str, package: str, root: str, alert: str) -> int:
    """Send a message. Returns the exit code: 0 if it was received, or if nobody is to be told.

    Args:
        number: id of the message in the control store.
        package: folder of the stream's package, which declares the alert.
        root: folder of the workspace.
        alert: index of the alert.
    """
    messages = Messages(Store(os.environ[CONTROL]))
    message, tries = messages.message(int(number)), 1
    timer = _kill_after(_LOADING_SECONDS, messages, message, 10)
    try:
        change = message.change
        declared = load(Path(package), change.environment, root, change.lake).alerts[int(alert)]
        timer.cancel()
        tries = declared.tries
        if not declared.tells(change.stream, change.level_before, change.level):
            messages.sent(message.id)
            return 0
        if message.tries > tries:  # the process of the last try ended without a word
            messages.failed(message.id, message.error or "its process has ended", tries)
            return 1
        timer = _kill_after(declared.deadline_seconds, messages, message, tries)
        crash.point("alert.before_send")
        _send(declared, message)
        crash.point("alert.after_send")
    except BaseException as error:  # noqa: BLE001 - whatever a hook raises, SystemExit too, is the reason of a failed try
        timer.cancel()  # first: to record the reason may take longer than the deadline leaves
        traceback.print_exc()
        messages.failed(message.id, _reason(error), tries)
        return 1
    finally:
        timer.cancel()
    messages.sent(message.id)
    crash.point("alert.after_record")
    return 0


def _kill_after(seconds: float, messages: Messages, message: Message, tries: int) -> threading.Timer:
    """Record a failed try, and kill this process and what it has started, after a time: a hook may hang where no exception reaches it."""

    def kill() -> None:
        messages.failed(message.id, f"it had not ended after {seconds:g} s", tries)
        os.killpg(0, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    return timer


def _reason(error: BaseException) -> str:
    """Why a try failed: without the text of errors that may quote a URL or a password."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the receiver answered {error.code}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"the mail server answered {error.smtp_code}"
    if isinstance(error, urllib.error.URLError):
        return f"the receiver cannot be reached: {error.reason}"
    return f"{type(error).__name__}: {error}"


def _send(alert: Alert, message: Message) -> None:
    if isinstance(alert.to, Webhook):
        _post(alert.to, message, alert.deadline_seconds)
    elif isinstance(alert.to, Email):
        _mail(alert.to, message, alert.deadline_seconds)
    else:
        alert.to(message.change)


def _post(hook: Webhook, message: Message, seconds: float) -> None:
    url = _plain(hook.url)
    if not url.startswith(("http://", "https://")):
        msg = "the URL of the webhook is not one of http or https"
        raise ValueError(msg)
    body = json.dumps(asdict(message.change) | {"text": str(message.change)}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": message.change.key}
    headers |= {name: _plain(value) for name, value in hook.headers.items()}
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - its scheme is checked above
    with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310 - as above
        answer.read(1)


def _mail(email: Email, message: Message, seconds: float) -> None:
    change = message.change
    mail = EmailMessage()
    mail["Subject"] = f"{change.level}: {change.stream} is {change.condition}"
    mail["From"], mail["To"] = email.sender, ", ".join(email.to)
    mail["Message-ID"] = f"<{change.key}@floodmark>"
    lines = [f"{name}: {value}" for name, value in asdict(change).items() if value != ""]
    mail.set_content("\n".join([str(change), "", *lines]) + "\n")
    host, _, port = email.server.partition(":")
    kind = smtplib.SMTP_SSL if email.security == "tls" else smtplib.SMTP
    with kind(host, int(port or 0), timeout=seconds) as server:
        if email.security == "starttls":
            server.starttls()
        if email.user is not None:
            server.login(_plain(email.user), _plain(email.password or ""))
        server.send_message(mail)


def _plain(text: Text) -> str:
    """The text, or the value of the variable that holds it."""
    if isinstance(text, str):
        return text
    value = os.environ.get(text.name)
    if value is None:
        msg = f"the environment variable {text.name} is not set where the supervisor runs"
        raise _SecretError(msg)
    return value


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
