"""Animations of the documentation, from real runs: PYTHONPATH=src:. python tests/support/animations.py docs/images

``backfill.webp``: three days of a chain of assets are chosen in Dagster's dialog, and the graph turns green. Needs Chromium and Pillow (``pip install pillow``).
"""

from __future__ import annotations

import io
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

from browser import _choose, chromium
from dagster_server import LOCATION, Server, serving

if TYPE_CHECKING:
    from PIL.Image import Image
    from playwright.sync_api import Page

WIDTH = 840
"""Pixels."""
CLIP = {"x": 400, "y": 0, "width": 840, "height": 800}
"""The part of the page with the graph and the dialog."""
DIFFERENT, LEAST_PIXELS = 24, 150
"""Change of a pixel, and number of pixels, below which a frame is as the one before: a spinner turns all the time."""
MOST_BYTES = 1_000_000
HOLD_MS, FIRST_MS, LAST_MS = 500, 1_500, 4_000
"""How long a frame is seen: in between, first, last."""
ZOOM_OUT = 1473, 652
"""Where the button is on a page of 1500 x 800."""
DAYS = "2025-03-01", "2025-03-03"
OPERATORS = '''

@operator(inputs={"sales": hourly_sales})
def best_hour(sales: Stream) -> Stream:
    """The best hour of each country and day."""
    return sales.key_by("country").window(Tumbling("1 day")).aggregate(cents=maximum("cents"))


@operator
def large_orders(orders: Stream[Order]) -> Stream:
    """Orders of more than a hundred."""
    return orders.filter("cents > 10000")
'''
ASSETS = """
best_hour = operator_asset(operators.best_hour, partitions=hourly_sales.partitions)
large_orders = operator_asset(operators.large_orders, partitions=hourly_sales.partitions)
"""
"""What the shop has in addition, so that its graph is one."""


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
            if sum(changed.get_flattened_data()) < LEAST_PIXELS:
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
    page.goto(f"{server.url}/locations/{LOCATION}/asset-groups/operators/lineage")
    page.get_by_text("best_hour", exact=True).first.wait_for()
    page.wait_for_timeout(3_000)  # a graph draws itself in steps no element tells of
    for _ in range(5):
        page.mouse.click(*ZOOM_OUT)
        page.wait_for_timeout(300)
    page.mouse.move(1_100, 600)
    page.mouse.down()
    page.mouse.move(1_060, 670, steps=5)
    page.mouse.up()
    page.wait_for_timeout(1_000)
    film.shoot()
    page.get_by_role("button", name="Materialize").first.click()
    dialog = page.get_by_role("dialog").first
    dialog.wait_for()
    page.wait_for_timeout(1_500)
    film.shoot()
    _choose(dialog, *DAYS)
    film.watch(1)
    dialog.get_by_role("button", name="Launch").last.click()
    over = {"COMPLETED_SUCCESS", "COMPLETED_FAILED", "COMPLETED", "FAILED", "CANCELED"}
    film.watch(240, lambda: bool(ended := server.backfills()) and ended[0]["status"] in over)
    film.watch(8)
    return str(server.backfills()[0]["status"])


def shop(root: Path) -> Path:
    """A new shop with three days of orders."""
    subprocess.run([sys.executable, "-m", "floodmark.cli.main", "init", "shop"], cwd=root, check=True)
    folder = root / "shop"
    for name, addition in (("operators/orders.py", OPERATORS), ("assets/orders.py", ASSETS)):
        text = (folder / name).read_text().replace('end="2025-03-02"', 'end="2025-03-04"')
        (folder / name).write_text(text.replace(", operator, sum", ", operator, sum, max as maximum") + addition)
    for file in sorted((folder / "inbox" / "orders").glob("*.csv")):
        for day in (2, 3):
            text = file.read_text().replace("2025-03-01T", f"2025-03-0{day}T").replace(",10", f",{day}0")
            (file.parent / file.name.replace("03-01", f"03-0{day}")).write_text(text)
    command = [sys.executable, "-m", "floodmark.cli.main", "land", "orders", "--end"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


def main(folder: Path) -> None:
    """Make all animations."""
    with TemporaryDirectory() as scratch:
        made = shop(Path(scratch))
        with serving(made, Path(scratch) / "state") as server, chromium() as page:
            assert server.ended(server.launch("orders", tags={})) == "SUCCESS"
            page.set_viewport_size({"width": 1500, "height": 800})
            film = Film(page)
            status = backfill(page, server, film)
            assert status == "COMPLETED_SUCCESS", status
            film.save(folder / "backfill.webp")
            print(len(film.frames), "frames")  # noqa: T201 - a script


if __name__ == "__main__":
    main(Path(sys.argv[1]))
