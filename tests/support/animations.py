"""Animations of the documentation, from real runs: PYTHONPATH=src:. python tests/support/animations.py docs/images

``backfill.webp``: three days of a chain of assets are chosen in Dagster's dialog, and the graph turns green. Needs Chromium and Pillow (``pip install pillow``).
"""

from __future__ import annotations

import io
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

from browser import _choose, chromium
from dagster_server import LOCATION, ROOT, Server, serving

from demo.inbox import write_inbox

if TYPE_CHECKING:
    from PIL.Image import Image
    from playwright.sync_api import Page

WIDTH = 900
"""Pixels."""
CLIP = {"x": 240, "y": 0, "width": 1260, "height": 800}
"""The part of the page beside Dagster's navigation."""
DIFFERENT, LEAST_PIXELS = 24, 150
"""Change of a pixel, and number of pixels, below which a frame is as the one before: a spinner turns all the time."""
MOST_BYTES = 1_000_000
HOLD_MS, FIRST_MS, LAST_MS = 500, 1_500, 4_000
"""How long a frame is seen: in between, first, last."""
ZOOM = 450
"""Turns of the wheel after which the whole graph is seen."""
DAYS = "2013-01-01", "2013-01-03"
ASSETS = ("hourly_departures", "busiest_hour")


@dataclass
class Film:
    """Frames of a page; those that are as the one before are left out."""

    page: Page
    frames: list[Image] = field(default_factory=list)

    def shoot(self) -> None:
        """Take a frame."""
        from PIL import Image, ImageChops

        image = Image.open(io.BytesIO(self.page.screenshot(clip=CLIP))).convert("RGB")
        image = image.resize((WIDTH, image.height * WIDTH // image.width), Image.Resampling.LANCZOS)
        if self.frames:
            changed = ImageChops.difference(image, self.frames[-1]).convert("L").point(lambda value: value > DIFFERENT)
            if sum(changed.getdata()) < LEAST_PIXELS:
                return
        self.frames.append(image)

    def watch(self, seconds: float, until: object = lambda: False) -> None:
        """Take frames for some seconds, or until something is so."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():  # type: ignore[operator]  # a function without arguments
            self.shoot()
            self.page.wait_for_timeout(300)
        self.shoot()

    def save(self, file: Path) -> None:
        """Write the animation; its quality falls until it is small enough."""
        times = [FIRST_MS, *[HOLD_MS] * (len(self.frames) - 2), LAST_MS]
        for quality in range(80, 20, -10):
            self.frames[0].save(
                file,
                save_all=True,
                append_images=self.frames[1:],
                duration=times,
                loop=0,
                quality=quality,
                method=6,
            )
            if file.stat().st_size <= MOST_BYTES:
                return
        msg = f"{file} has {file.stat().st_size} bytes"
        raise ValueError(msg)


def backfill(page: Page, server: Server, film: Film) -> str:
    """Choose days in the dialog, launch, and watch the graph until the backfill has ended; its status."""
    page.goto(f"{server.url}/locations/{LOCATION}/asset-groups/departures/lineage")
    page.get_by_text(ASSETS[-1], exact=True).first.wait_for()
    page.wait_for_timeout(3_000)
    page.mouse.move(800, 450)
    page.mouse.wheel(0, ZOOM)
    page.wait_for_timeout(2_000)
    film.shoot()
    page.get_by_role("button", name="Materialize").first.click()
    dialog = page.get_by_role("dialog").first
    dialog.wait_for()
    film.shoot()
    _choose(dialog, *DAYS)
    film.watch(1)
    dialog.get_by_role("button", name="Launch").last.click()
    over = {"COMPLETED_SUCCESS", "COMPLETED_FAILED", "COMPLETED", "FAILED", "CANCELED"}
    film.watch(240, lambda: bool(ended := server.backfills()) and ended[0]["status"] in over)
    film.watch(8)
    return str(server.backfills()[0]["status"])


def main(folder: Path) -> None:
    """Make all animations."""
    with TemporaryDirectory() as place:
        root = Path(place)
        write_inbox(root / "inbox", days=3)
        variables = {
            "FLOODMARK_LAKE": str(root / "lake"),
            "FLOODMARK_FOLDER": str(root),
            "FLOODMARK_ENGINE": "embedded",
        }
        with serving(ROOT, root / "state", **variables) as server, chromium() as page:
            status = server.ended(server.launch("flights", tags={}))
            assert status == "SUCCESS", status
            page.set_viewport_size({"width": 1500, "height": 800})
            film = Film(page)
            status = backfill(page, server, film)
            assert status == "COMPLETED_SUCCESS", status
            film.save(folder / "backfill.webp")
            print(len(film.frames), "frames")  # noqa: T201 - a script


if __name__ == "__main__":
    main(Path(sys.argv[1]))
