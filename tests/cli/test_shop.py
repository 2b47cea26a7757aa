"""The README's commands in a scaffolded workspace, as programs with Spark."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import forked
import pytest
from deltalake import DeltaTable

from floodmark.cli.new.scaffold import scaffold

from .conftest import command, program

SALES = {
    ("DE", 8): (6, 14_688 + 9_900 + 1_100),
    ("FR", 8): (2, 4350),
    ("DE", 9): (2, 3750),
    ("FR", 9): (2, 8000),
}
"""Hours that have closed: on-time orders, plus 1011, which came late. 1016 and 1018 came too late, 1013 is broken."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose orders have landed."""
    parent = tmp_path_factory.mktemp("cli")
    made = program(parent, "init", "shop")
    assert made.returncode == 0, made.stderr
    folder = parent / "shop"
    done = program(folder, "land", "orders", "--json")
    assert done.returncode == 0, done.stderr
    (landed,) = json.loads(done.stdout)["sources"]
    assert (landed["rows"], landed["commits"], landed["quarantined"]) == (19, 1, 1)
    return folder


def sales(lake: Path) -> dict[tuple[str, int], tuple[int, int]]:
    rows = DeltaTable(str(lake / "outputs" / "hourly_sales__current")).to_pyarrow_table().to_pylist()
    return {(row["country"], row["window_start"].hour): (row["orders"], row["cents"]) for row in rows}


def late(lake: Path) -> list[int]:
    rows = DeltaTable(str(lake / "outputs" / "hourly_sales__late")).to_pyarrow_table().to_pylist()
    return sorted(row["order_id"] for row in rows if row["_kind"] == 0)


def test_prove_says_how_many_runs_agreed_and_writes_nothing(shop: Path) -> None:
    done = program(shop, "prove", "hourly_sales", "--cuts", "4", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["equal"], found["cuts"], found["rows"], found["seed"]) == (True, 4, 19, None)
    assert found["results"] > len(SALES)
    none = program(shop, "prove", "hourly_sales", "--from", "2030-01-01")
    assert none.returncode == 1
    assert "EXECUTION-008" in none.stderr


@pytest.mark.soak
def test_prove_kills_a_stream_on_spark_and_compares_it_with_a_bounded_run(shop: Path) -> None:
    found = json.loads(program(shop, "prove", "hourly_sales", "--cuts", "1", "--spark", "--json").stdout)
    assert found["spark"]["killed_at"].startswith("micro_batch.")
    assert (found["spark"]["results"], found["spark"]["differences"]) == (found["results"], [])


@pytest.mark.feature("W12", "L7", "L8", "X1", "Q7", "B2")
def test_bounded_then_unbounded_give_the_same_answer_and_the_plan_sees_what_changes(shop: Path, tmp_path: Path) -> None:
    bounded = program(shop, "run", "hourly_sales")
    assert bounded.returncode == 0, bounded.stderr
    assert bounded.stdout.startswith(f"lake {shop / 'lake'} (dev)\n")
    assert "late: 1 taken in, 2 dropped" in bounded.stdout
    first = sales(shop / "lake")
    assert {hour: first[hour] for hour in SALES} == SALES
    assert late(shop / "lake") == [1016, 1018]
    unbounded = program(shop, "run", "hourly_sales", "--unbounded", "--until-caught-up")
    assert unbounded.returncode == 0, unbounded.stderr
    assert "micro-batch 0" in unbounded.stderr
    second = sales(shop / "lake")
    assert second == first, "hours that are still open keep their values of the bounded run"
    assert late(shop / "lake") == [1016, 1018]
    _plan_of_an_edit(shop, tmp_path)
    said = program(shop, "status")
    assert said.stdout.startswith(f"lake {shop / 'lake'} (dev)\n  source ")
    assert "unbounded  embedded  2025-03-01T10:50:29.999Z  0 s" in said.stdout


def test_json_is_one_document_and_progress_goes_to_stderr(shop: Path) -> None:
    done = program(shop, "run", "hourly_sales", "--json", "--lake", "empty")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["fix"]) == ("EXECUTION-002", "Land it first: floodmark --lake empty land orders")
    assert done.stderr == f"lake {shop / 'empty'} (dev)\n"


def test_the_quarantine_shows_the_row_and_replays_it(shop: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(shop, folder)
    shown = program(folder, "quarantine", "show", "orders")
    assert "orders: 1 row in quarantine" in shown.stdout
    assert "orders_2025-03-01_10.csv:8: items: expected greater than 0, got '0'" in shown.stdout
    orders = folder / "operators" / "orders.py"
    orders.write_text(orders.read_text().replace("items: int = Field(gt=0)", "items: int = Field(ge=0)"))
    replayed = json.loads(program(folder, "quarantine", "replay", "orders", "--json").stdout)
    assert (replayed["landed"], replayed["still_broken"]) == (1, 0)


def _plan_of_an_edit(shop: Path, tmp_path: Path) -> None:
    none = program(shop, "plan", "--lake", str(tmp_path / "none"))
    assert ": no stream; floodmark run hourly_sales --unbounded starts one" in none.stdout
    same = program(shop, "plan")
    assert ": no-op, it means what its stream was started with" in same.stdout
    folder = tmp_path / "edited"
    shutil.copytree(shop, folder)
    orders = folder / "operators" / "orders.py"
    orders.write_text(
        orders.read_text().replace('orders.key_by("country")', 'orders.filter("cents > 100").key_by("country")')
    )
    said = program(folder, "plan", "hourly_sales")
    assert (
        ": forward-only\n  before 'hourly_sales': new: filter cents > 100\n    forward-only: Spark would resume"
        in said.stdout
    )
    (found,) = json.loads(program(folder, "plan", "hourly_sales", "--json").stdout)["plans"]
    assert (found["verdict"], found["changes"][0]["after"]) == ("forward-only", "filter cents > 100")
    refused = program(folder, "run", "hourly_sales", "--unbounded", "--until-caught-up")
    assert refused.returncode == 1
    assert "STATE-003" in refused.stderr
    assert "floodmark plan hourly_sales" in refused.stderr


def test_what_a_function_fails_for_is_shown_and_is_gone_once_it_is_mended(shop: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(shop, folder)
    orders = folder / "operators" / "orders.py"
    orders.write_text(orders.read_text() + _PRICES)  # which is all that a new operator takes
    nothing = program(folder, "quarantine", "show", "hourly_sales")
    assert nothing.stdout.endswith("hourly_sales: nothing in quarantine\n")
    done = json.loads(program(folder, "run", "prices", "--json").stdout)
    assert done["rows"] == {"prices": 17, "prices__quarantine": 2}
    assert "floodmark quarantine show prices" in done["warnings"][0]
    shown = program(folder, "quarantine", "show", "prices")
    assert "prices: 2 rows or panes in quarantine" in shown.stdout
    assert "flat_map 'priced': ValueError: voucher SPRING" in shown.stdout
    assert '"order_id": 1002' in shown.stdout
    refused = program(folder, "quarantine", "replay", "prices")
    assert "floodmark run prices" in refused.stderr
    orders.write_text(orders.read_text().replace('if order["voucher"]', "if False"))
    mended = json.loads(program(folder, "run", "prices", "--json").stdout)
    assert mended["rows"] == {"prices": 19, "prices__quarantine": 0}
    assert "nothing in quarantine" in program(folder, "quarantine", "show", "prices").stdout


_PRICES = '''

class Priced(Contract):
    """An order's price per item."""

    country: str
    cents: int


def priced(order):
    """Fails for orders with a voucher."""
    if order["voucher"]:
        raise ValueError(f"voucher {order['voucher']}")
    yield {"country": order["country"], "cents": order["cents"] // order["items"]}


@operator
def prices(orders: Stream[Order]) -> Stream:
    """Price per item."""
    return orders.flat_map(priced, Priced, on_error="quarantine")
'''


def test_ctrl_c_stops_at_a_micro_batch_boundary_and_a_restart_goes_on(shop: Path) -> None:
    lake = shop / "interrupted"
    environment = os.environ | {"FLOODMARK_LOGS": str(shop / "lake")}
    arguments = command("run", "hourly_sales", "--unbounded", "--lake", str(lake))
    process = forked.begin(
        arguments,
        cwd=shop,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    lines = []
    try:
        for line in process.stderr:
            lines.append(line)
            if "micro-batch 0" in line:
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everything in the group
                break
        out, rest = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    said = "".join(lines) + rest
    assert process.returncode == 0, said
    assert "SIGINT: stopping after this micro-batch; once more aborts" in said
    assert "stopped at a micro-batch boundary" in said
    assert "Traceback" not in said
    assert "hourly_sales" in out
    done = forked.run([*arguments, "--until-caught-up"], cwd=shop, env=environment)
    assert done.returncode == 0, done.stderr
    assert sales(lake) == SALES


@pytest.mark.feature("D6")
def test_continuous_landing_takes_a_new_file_and_stops_on_sigterm(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    scaffold(folder, None)
    process = forked.begin(
        command("land", "orders", "--continuous"),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "orders commit 0" in line:
                draft = folder / "inbox" / "orders" / "orders_2025-03-01_12.csv.part"
                draft.write_text(
                    "ordered_at,order_id,country,items,cents,voucher\n2025-03-01T11:40:00Z,1021,DE,1,100,\n"
                )
                draft.rename(draft.with_suffix(""))  # whole at once: the program looks again and again
            if "orders commit 1" in line:
                process.terminate()
                break
        out, rest = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, rest
    assert "SIGTERM: stopping after this landing commit" in rest
    assert "orders: 20 rows in 2 commits, 1 quarantined" in out
