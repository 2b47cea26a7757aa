"""The accounts of ``examples/alerts`` on an engine: robberies and low balances, against loops over the rows of each account."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

from example_workspaces import START, Row, by_key, chained, disordered, example, shown

from floodmark.control.processes.engine import Computing

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def phished(own: list[Row]) -> list[Row]:
    """The accounts' robberies among the rows of one account, in order: the earliest log-in first, without overlap."""
    alerts, over = [], -1
    for n, usual in enumerate(own):
        if n <= over or usual["what"] != "login":
            continue
        stage, login = "login", usual
        for m in range(n + 1, len(own)):
            row = own[m]
            if row["at"] - usual["at"] >= DAY:
                break
            if stage == "login":
                if row["what"] == "login" and row["device"] != usual["device"]:
                    stage, login = "payee", row
            elif row["what"] == stage and row["device"] == login["device"]:
                if stage == "payee":
                    stage = "payment"
                elif row["cents"] <= -50_000 and row["at"] - login["at"] < 10 * MINUTE:
                    alerts.append(
                        {"account": row["account"], "device": row["device"], "at": row["at"], "cents": row["cents"]}
                    )
                    over = m
                    break
    return alerts


def check_accounts(engine: Computing, folder: Path) -> None:
    """Fail unless an engine says which of some drawn accounts are being emptied, and which have little left."""
    draw, entries = random.Random(45), list[Row]()
    for n in range(900):
        at = START + n * timedelta(seconds=20) + timedelta(milliseconds=n)
        what = draw.choice(["login", "payee", "payment", "payment"])
        cents = draw.choice([-60_000, -500, 50_000, 10_500]) if what == "payment" else 0
        entries.append(
            {
                "at": at,
                "account": draw.choice("ab"),
                "what": what,
                "device": draw.choice(["phone", "desk"]),
                "cents": cents,
            }
        )
    alerts, low = list[Row](), list[Row]()
    for account, own in by_key(entries, "account"):
        alerts += phished(own)
        balance = 0
        for row in own:
            if row["what"] == "payment":
                before, balance = balance, balance + row["cents"]
                low += [{"account": account, "cents": balance}] if balance < 10_000 <= before else []
    assert len(alerts) > 5
    assert len(low) > 5
    module = example("alerts")
    for tables in chained(
        [module.phished, module.low_balances], {"entries": disordered(entries, 9, draw)}, folder, engine
    ):
        assert shown(tables["phished"], *alerts[0]) == shown(alerts, *alerts[0])
        assert shown(tables["low_balances"], *low[0]) == shown(low, *low[0])
