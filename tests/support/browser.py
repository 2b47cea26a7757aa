"""Dagster's pages in a real Chromium: what is clicked is done once its effect is there, else the page is loaded and clicked again.

Dagster draws a page in steps, and a later step takes away what an earlier one has opened: the list of partitions of a launchpad closes when
the partitions arrive. ``FLOODMARK_THROTTLE=6`` has Chromium compute six times slower.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from dagster_server import Server, until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

T = TypeVar("T")

SCREENSHOTS = os.environ.get("FLOODMARK_SCREENSHOTS")
"""Where the pictures of the documentation go; not set, none is taken."""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BLANK = "about:blank"
"""A page of Dagster's that is open asks the server and draws itself all the time."""
SECONDS = 300
"""For all tries of one act together."""
TRY_SECONDS = 60
"""For one thing on a page, and for the effect of one try."""
SOON = 5_000
"""Milliseconds for what a page shows at once if it shows it."""


@contextmanager
def chromium() -> Iterator[Page]:
    """A page of its own."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.fail("no Chromium: install it (apt-get install chromium), or leave its tests out with -m 'not browser'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 950})
        page.set_default_timeout(TRY_SECONDS * 1000)
        if rate := os.environ.get("FLOODMARK_THROTTLE"):
            page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": float(rate)})
        try:
            yield page
        finally:
            browser.close()


def picture(page: Page, name: str) -> None:
    """A picture of the documentation."""
    if SCREENSHOTS:
        page.wait_for_timeout(1500)  # a graph draws itself in steps no element tells of
        page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"))


def until_done(act: Callable[[], T | None], seconds: float = SECONDS) -> T:
    """What ``act`` gives, which looks for its effect. It is done again while a step of it takes too long or meets a page that is drawn anew, or it gives nothing."""
    from playwright.sync_api import Error

    late: list[Error] = []

    def look() -> T | None:
        try:
            return act()
        except Error as error:
            late.append(error)
            return None

    try:
        found: T = until(look, seconds)
    except AssertionError as error:
        raise (late[-1] if late else error) from None
    return found


def within(look: Callable[[], Any], seconds: float = TRY_SECONDS) -> Any:
    """What ``look`` says once it says something; None where that takes longer."""
    try:
        return until(look, seconds)
    except AssertionError:
        return None


def visit(page: Page, url: str, *texts: str) -> None:
    """Load a page until it says all of this."""

    def act() -> bool:
        page.goto(url)
        for text in texts:
            page.get_by_text(text).first.wait_for()
        return True

    until_done(act)


def turn(page: Page, server: Server, schedule: str, state: str) -> None:
    """Turn a schedule ``RUNNING`` or ``STOPPED`` by its switch."""

    def act() -> bool:
        page.goto(f"{server.url}/locations/{server.location}/schedules/{schedule}")
        switch = page.locator("label[class*=formatSwitch]").first
        switch.wait_for()
        if switch.locator("input").is_checked() != (state == "RUNNING"):
            switch.click()
        return bool(within(lambda: server.schedule(schedule) == state))

    if server.schedule(schedule) != state:
        until_done(act)
        page.goto(BLANK)


def launch(page: Page, server: Server, job: str, *, partition: str = "", config: str = "", name: str = "") -> str:
    """Launch a job from its launchpad, for a partition picked from the list, with a config that is typed in; the run's id.

    Args:
        page: Of a browser.
        server: Whose job it is.
        job: Its name.
        partition: One of the list; empty, the job has none.
        config: YAML; empty, what the launchpad proposes.
        name: Of a picture of the launchpad, before the click.
    """
    known = {run["runId"] for run in server.runs(job)}

    def launched() -> str | None:
        return next((str(run["runId"]) for run in server.runs(job) if run["runId"] not in known), None)

    def act() -> str | None:
        if found := launched():  # by the click of the try before
            return found
        page.goto(f"{server.url}/locations/{server.location}/jobs/{job}/playground")
        editor = page.locator(".CodeMirror").first
        editor.wait_for()
        if partition:
            _pick(page, partition)
        if config:
            editor.click()
            page.keyboard.press("Control+A")
            page.keyboard.insert_text(config)
            if page.evaluate("document.querySelector('.CodeMirror').CodeMirror.getValue()").strip() != config.strip():
                return None
        if name:
            picture(page, name)
        page.get_by_role("button", name="Launch Run").click()
        return within(launched)

    run = until_done(act)
    page.goto(BLANK)
    return run


def _pick(page: Page, partition: str) -> None:
    """Choose a partition in the box of a launchpad, which then names it among the tags.

    The box is drawn anew once the list is there, and the list shows only its first entries unless one types.
    """
    box, tag = page.get_by_placeholder("Partition"), page.get_by_text(f"partition: {partition}")
    box.wait_for()

    def act() -> bool:
        if not tag.count():
            box.fill(partition, timeout=SOON)
            page.get_by_role("menuitem", name=partition).first.click(timeout=SOON)
            tag.first.wait_for(timeout=SOON)
        return True

    until_done(act, 2 * TRY_SECONDS)


def _choose(dialog: Locator, first: str, last: str) -> None:
    """Type the days into the dialog of a backfill, which counts them once it knows its partitions."""
    days = (date.fromisoformat(last) - date.fromisoformat(first)).days + 1
    box = dialog.get_by_role("textbox").first
    box.wait_for()

    def act() -> bool:
        box.fill(f"[{first}...{last}]", timeout=SOON)
        box.press("Enter", timeout=SOON)
        dialog.get_by_text(re.compile(rf"^{days} partitions?$")).first.wait_for(timeout=SOON)
        return True

    until_done(act, 2 * TRY_SECONDS)


def backfill(page: Page, server: Server, url: str, shows: str, first: str, last: str, name: str = "") -> dict[str, Any]:
    """Materialize the partitions of everything on a page by clicks; the backfill, once it has ended.

    Args:
        page: Of a browser.
        server: Whose assets they are.
        url: Of the page, which is drawn once ...
        shows: ... this text is there.
        first: Day, such as 2013-01-01.
        last: Day, included.
        name: Of a picture of the page, before the clicks.
    """
    known = {one["id"] for one in server.backfills()}

    def launched() -> str | None:
        return next((str(one["id"]) for one in server.backfills() if one["id"] not in known), None)

    def act() -> str | None:
        if found := launched():  # by the click of the try before
            return found
        page.goto(url)
        page.get_by_text(shows, exact=True).first.wait_for()
        if name:
            picture(page, name)
        page.get_by_role("button", name="Materialize").first.click()
        dialog = page.get_by_role("dialog").first
        _choose(dialog, first, last)
        dialog.get_by_role("button", name="Launch").last.click()
        return within(launched)

    new = until_done(act)
    page.goto(BLANK)
    over = {"COMPLETED_SUCCESS", "COMPLETED_FAILED", "COMPLETED", "FAILED", "CANCELED"}
    return until(lambda: next((o for o in server.backfills() if o["id"] == new and o["status"] in over), None), 600)
