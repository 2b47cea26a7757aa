"""Vitals: metrics, pages, ``top`` and alerts tell the same health of a stream, whatever has happened to it and to those that it reads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from floodmark.cli.verbs.reading.top import frame
from floodmark.control.health.alerting import Alerting
from floodmark.control.health.judgement import CONDITIONS
from floodmark.control.processes.supervisor import LEASE
from floodmark.control.serving import pages
from floodmark.control.serving.exposition import exposition
from floodmark.control.state.messages import Messages
from floodmark.control.state.records import Deployment, Watch
from floodmark.control.state.store import Store
from floodmark.control.streams.vitals import vitals
from floodmark.spec.assets.alert import LEVELS
from floodmark.spec.assets.restart import Restart

NAMES = ("orders", "totals", "report")
"""Each reads the one before it."""


def deployed(name: str, inputs: tuple[tuple[str, str], ...], chance: random.Random) -> Deployment:
    about: dict[str, Any] = {"root": "/", "lake": "/lake", "environment": "dev", "package": "p"}
    freshness = chance.choice([None, 60_000])
    watch = Watch(table=f"/none/{name}", inputs=inputs, freshness=freshness, alerts=1)
    wanted, restart = chance.choice(["running", "running", "stopped"]), chance.choice([None, Restart.never()])
    about |= {"desired": wanted, "restart": restart, "watch": watch}
    return Deployment(operator=name, version=f"{name}@1", kind="source" if name == "orders" else "operator", **about)


def happen(store: Store, folder: Path, chance: random.Random) -> None:
    """Streams of which each has been started, has crashed, sleeps, waits, or nothing of it."""
    inputs: tuple[tuple[str, str], ...] = ()
    for name in NAMES:
        store.deploy(deployed(name, inputs, chance))
        inputs = ((name, f"/none/{name}"),)
        (deployment,) = [one for one in store.deployments() if one.operator == name]
        for state in chance.choices(["crashed", "running", "waiting", "asleep"], k=chance.randrange(3)):
            driver = store.begin(deployment, str(folder))
            if state == "crashed":
                store.end(driver.id, "crashed", chance.choice(["it broke", "STATE-003 it cannot go on"]))
            elif state == "asleep":
                store.end(driver.id, "stopped", "nothing is left to read", {})
            else:
                store.update(driver.id, state="running", reason=f"waiting: {name}" if state == "waiting" else None)


@pytest.mark.feature("O5", "Z7")
@pytest.mark.parametrize("seed", range(30))
def test_the_same_health_is_told_everywhere(seed: int, tmp_path: Path) -> None:
    chance, store = random.Random(seed), Store(f"sqlite:///{tmp_path}/control.db")
    happen(store, tmp_path, chance)
    if supervised := chance.random() < 0.8:
        assert store.lease(LEASE, "a supervisor", 3600) is not None
        Alerting(store, tmp_path, lambda _: None, ("true",)).look()
    seen = vitals(store, store.deployments())
    assert [one.name for one in seen] == sorted(NAMES)
    metrics, _ = exposition(lambda: seen)
    values = {
        (family.name, sample.labels["operator"], sample.labels.get(family.name)): sample.value
        for family in text_string_to_metric_families(metrics.decode())
        for sample in family.samples
    }
    screen = Console(width=200, record=True)
    screen.print(frame(seen, 200))
    shown, overview = screen.export_text(), pages.overview(seen)
    for stream in seen:
        health, told = stream.health, Messages(store).last_told(stream.deployment.stream)
        if supervised:
            assert told is not None
            assert (told.level, told.condition if health.level != "ok" else "") == (
                health.level,
                health.condition if health.level != "ok" else "",
            )
        for family, names, name in (("health", CONDITIONS, health.condition), ("level", LEVELS, health.level)):
            by_name = {one: values[f"floodmark_stream_{family}", stream.name, one] for one in names}
            assert by_name == {one: one == name for one in names}
        detail = pages.detail(store, stream)
        assert f'<span class="tag {health.level}"' in detail
        assert f">{health.condition}</span>" in detail
        assert f">{health.condition}</span>" in overview
        assert (f"{stream.name}: {health.reason}" in shown.replace("\n", "")) == (health.level != "ok")
        assert stream.as_json()["health"] == health.condition
        assert stream.as_json()["mend"] == health.mend
