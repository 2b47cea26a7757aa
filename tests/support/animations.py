"""Animations of the documentation, from real runs: PYTHONPATH=src:. python tests/support/animations.py docs/images

``backfill.webp``: three days of a chain of assets are chosen in Dagster's dialog, and the graph turns green. ``rollout.webp``: a changed version is judged beside
its stream, waits for an approval, gets one from the launchpad, and is done. ``expectation.webp``: the check of a stream before and after a micro-batch of which
an expectation is not met. Needs Chromium and Pillow (``pip install pillow``).
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

from browser import _choose, chromium, visit
from dagster_server import LOCATION, Server, serving, until

from floodmark.control.state.records import StreamId
from floodmark.control.state.rollout import Rollouts
from floodmark.control.state.store import Store

if TYPE_CHECKING:
    from PIL.Image import Image
    from playwright.sync_api import Page

WIDTH = 840
"""Pixels."""
GRAPH = {"x": 0, "y": 0, "width": 1000, "height": 880}
"""A whole page with the graph and the dialog, its navigation hidden: Dagster fits the graph into it."""
BESIDE_THE_MENU = {"x": 240, "y": 0, "width": 1260, "height": 800}
"""The part of a page with what is told of an asset or a run."""
DIFFERENT, LEAST_PIXELS = 24, 150
"""Change of a pixel, and number of pixels, below which a frame is as the one before: a spinner turns all the time."""
MOST_BYTES = 1_000_000
FIRST_MS, LAST_MS = 1_500, 4_000
"""How long the first and the last frame are seen."""
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
    clip: dict[str, int]
    hold: int
    """How long a frame in between is seen, ms."""
    width: int = WIDTH
    frames: list[Image] = field(default_factory=list)

    def shoot(self) -> None:
        """Take a frame."""
        from PIL import Image, ImageChops

        image = Image.open(io.BytesIO(self.page.screenshot(clip=self.clip))).convert("RGB")
        image = image.resize((self.width, image.height * self.width // image.width), Image.Resampling.LANCZOS)
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
        times = [FIRST_MS, *[self.hold] * (len(self.frames) - 2), LAST_MS]
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
    page.get_by_text("Hide navigation").click()
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
    verb(root, "init", "shop")
    folder = root / "shop"
    for name, addition in (("operators/orders.py", OPERATORS), ("assets/orders.py", ASSETS)):
        text = (folder / name).read_text().replace('end="2025-03-02"', 'end="2025-03-04"')
        (folder / name).write_text(text.replace(", operator, sum", ", operator, sum, max as maximum") + addition)
    for file in sorted((folder / "inbox" / "orders").glob("*.csv")):
        for day in (2, 3):
            text = file.read_text().replace("2025-03-01T", f"2025-03-0{day}T").replace(",10", f",{day}0")
            (file.parent / file.name.replace("03-01", f"03-0{day}")).write_text(text)
    verb(folder, "land", "orders", "--end")
    return folder


OPERATOR = "hourly_sales"
TRIED = """
hourly_sales = operator_asset(
    operators.hourly_sales,
    partitions=Daily("2025-03-01", end="2025-03-02"),
    expectations=[Expectation("column_values_to_be_between", column="cents", max_value=500_000, on_fail="stop")],
    rollout=Rollout(shadow="5 s", watch="5 s", promote=PromoteWhen(match=0.9, approve=True, every="2 s")),
)
"""
"""The asset of a shop whose versions are tried, and whose micro-batches are judged."""


def tried_shop(root: Path) -> Path:
    """A new shop whose versions are tried."""
    verb(root, "init", "shop")
    assets = root / "shop" / "assets" / "orders.py"
    text = assets.read_text().replace("Expectation, Files", "Expectation, Files, PromoteWhen, Rollout")
    before, _, behind = text.partition("\nhourly_sales = ")
    assets.write_text(before + TRIED + "\nvoucher_use = " + behind.partition("\nvoucher_use = ")[2])
    verb(root / "shop", "land", "orders")
    return root / "shop"


def order(folder: Path, hours: range, cents: int) -> None:
    """Twenty orders of each hour land, of so many cents each."""
    lines = [f"2025-03-01T{hour}:{n:02}:00Z,{hour}{n:02},DE,1,{cents}," for hour in hours for n in range(20)]
    header = "ordered_at,order_id,country,items,cents,voucher"
    (folder / "inbox" / "orders" / f"more-{hours.start}.csv").write_text("\n".join([header, *lines]) + "\n")
    verb(folder, "land", "orders")


def rollout(page: Page, server: Server, folder: Path, film: Film) -> None:
    """Change the operator, let the new version be judged, approve it from the launchpad, and wait until the rollout is done."""
    code = folder / "operators" / "orders.py"
    changed = code.read_text().replace('cents=sum("cents"))', 'cents=sum("cents")).with_columns(euros="cents / 100.0")')
    new = code.with_suffix(".new")
    new.write_text(changed)
    new.replace(code)
    records = Rollouts(Store(f"sqlite:///{folder}/.floodmark/control/control.db"))
    stream = StreamId(OPERATOR, str(folder / "lake"))

    def shown(state: str, *texts: str) -> None:
        until(lambda: records.of(stream, 1)[0].state == state, 240)
        visit(page, f"{server.url}/assets/rollouts/{OPERATOR}?view=events", state, *texts)
        page.wait_for_timeout(1_500)
        film.shoot()

    run = server.launch_job("rollout", {"ops": {"start_rollout": {"config": {"operator": OPERATOR}}}})
    assert server.ended(run) == "SUCCESS"
    shown("judging")
    order(folder, range(12, 15), 1_000)
    shown("awaiting approval", "nobody yet")
    page.goto(f"{server.url}/locations/{server.location}/jobs/approve_rollout/playground")
    page.locator(".CodeMirror").first.wait_for()
    page.wait_for_timeout(2_500)
    film.shoot()
    page.get_by_role("button", name="Launch Run").click()
    page.get_by_text("Success").first.wait_for(timeout=120_000)
    page.wait_for_timeout(1_000)
    film.shoot()
    shown("done")


def judged(page: Page, server: Server, folder: Path, film: Film) -> None:
    """The check of the stream while all is well, and after a micro-batch with hours that sold too much."""
    check = f"{server.url}/assets/{OPERATOR}?view=checks&checkDetail=stream"
    visit(page, check, "Succeeded", "running")
    page.wait_for_timeout(1_500)
    film.shoot()
    order(folder, range(16, 18), 90_000)
    order(folder, range(20, 21), 100)
    visit(page, check, "EXECUTION-090")
    page.wait_for_timeout(1_500)
    film.shoot()
    page.get_by_text("EXECUTION-090").first.evaluate("reason => reason.scrollIntoView({block: 'center'})")
    page.wait_for_timeout(500)
    film.shoot()


def verb(folder: Path, *words: str) -> None:
    """A verb of floodmark's in a folder, which succeeds."""
    subprocess.run([sys.executable, "-m", "floodmark.cli.main", *words], cwd=folder, check=True)


def saved(film: Film, file: Path) -> None:
    """Write an animation, and say how long it is."""
    film.save(file)
    print(file, len(film.frames), "frames", file.stat().st_size, "bytes")  # noqa: T201 - a script


def main(folder: Path, *names: str) -> None:
    """Make some animations, or all."""
    if not names or "backfill" in names:
        with TemporaryDirectory() as scratch:
            made = shop(Path(scratch))
            with serving(made, Path(scratch) / "state") as server, chromium() as page:
                assert server.ended(server.launch("orders", tags={})) == "SUCCESS"
                page.set_viewport_size({"width": GRAPH["width"], "height": GRAPH["height"]})
                film = Film(page, GRAPH, 500, GRAPH["width"])
                status = backfill(page, server, film)
                assert status == "COMPLETED_SUCCESS", status
                saved(film, folder / "backfill.webp")
    if not names or "rollout" in names:
        with TemporaryDirectory() as scratch:
            made = tried_shop(Path(scratch))
            with serving(made, made / ".floodmark" / "dagster", supervise=True) as server, chromium() as page:
                start = {"ops": {"start_streams": {"config": {"streams": [OPERATOR]}}}}
                assert server.ended(server.launch_job("start", start)) == "SUCCESS"
                page.set_viewport_size({"width": 1500, "height": 800})
                for name, act in (("rollout", rollout), ("expectation", judged)):
                    film = Film(page, BESIDE_THE_MENU, 2_200)
                    act(page, server, made, film)
                    saved(film, folder / f"{name}.webp")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
