"""Metrics for Prometheus: every family is exported and documented; dashboard and alerts ask for nothing else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from floodmark.control.serving import pages
from floodmark.control.serving.exposition import FAMILIES, LABELS, exposition
from floodmark.control.state import measures
from floodmark.control.state.records import Deployment
from floodmark.control.state.store import Store
from floodmark.control.streams.vitals import Vitals, vitals
from floodmark.core.time import describe_roughly
from floodmark.observe.measure import Measure
from floodmark.spec.values.run import CheckpointInfo

SERVING = files("floodmark.control.serving")
PAGE = Path(__file__).parents[2] / "docs" / "observing.md"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
HOSTILE = '"><script>alert(1)</script>\n\\'


def deployed(name: str, lake: str, kind: Any = "operator") -> Deployment:
    about: dict[str, Any] = {"root": "/", "environment": "dev", "package": "p", "desired": "running", "kind": kind}
    return Deployment(operator=name, lake=lake, version=f"{name}@1", **about)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path}/control.db")


@pytest.fixture
def streams(store: Store, tmp_path: Path) -> Sequence[Vitals]:
    """A stream in two lakes, with all that can be measured, and a source."""
    now = time.time()
    for deployment in (deployed("totals", "/a"), deployed("totals", "/b"), deployed("orders", "/a", "source")):
        store.deploy(deployment)
        part = {"counter": 3}, {"gauge": [5, 1.5]}, {"histogram": [[1, 10], [2, 1, 1], 25]}, {"meter": 60}
        observed = dict(zip(("seen", "level", "sizes", "rate", HOSTILE), (*part, {"counter": 1}), strict=True))
        for number in range(3):
            measure = Measure(
                history="t/0",
                number=number,
                at=now - 10 + number,
                seconds=0.5,
                phases={"compute": 0.4, "write": 0.1},
                rows_in=10,
                rows={deployment.operator: 4, HOSTILE: 1},
                late=1,
                dropped=2,
                quarantined=3,
                retractions=1,
                progress=1_700_000_000_000,
                read={},
                checkpoint=CheckpointInfo(batch=number, seconds=0.1, written=50, held=100),
                unmet={"totals": {"positive": 1}},
                metrics=observed,
            )
            measures.record(store, deployment.stream, measure)
    return vitals(store, store.deployments())


def exported(streams: Sequence[Vitals]) -> set[str]:
    """The names of samples, as a scraper sees them."""
    text, kind = exposition(lambda: streams, OPEN_METRICS)
    assert kind.startswith("application/openmetrics-text")
    return {sample.name for family in text_string_to_metric_families(text.decode()) for sample in family.samples}


MISSING = {"floodmark_input_lag_seconds", "floodmark_backlog_rows", "floodmark_backlog_bytes"}
"""Of streams that have an input; the test with a real driver has them."""


def test_each_family_is_exported_with_its_labels_and_no_two_samples_are_alike(streams: Sequence[Vitals]) -> None:
    text, _ = exposition(lambda: streams, OPEN_METRICS)
    families = list(text_string_to_metric_families(text.decode()))
    assert {family.name for family in families} == {family.name for family in FAMILIES}
    samples = [sample for family in families for sample in family.samples]
    assert {family.name for family in families if not family.samples} <= MISSING
    assert all(set(LABELS) <= set(sample.labels) for sample in samples)
    alike = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples]
    assert len(alike) == len(set(alike))
    value = {(s.name, s.labels.get("metric"), s.labels.get("le")): s.value for s in samples if s.labels["lake"] == "/b"}
    assert value["floodmark_user_counter_total", "seen", None] == 9
    assert value["floodmark_user_counter_total", HOSTILE, None] == 3, "escaped, and read back"
    assert value["floodmark_user_meter_rate", "rate", None] == 3
    assert value["floodmark_user_histogram_bucket", "sizes", "10.0"] == 9
    assert value["floodmark_user_histogram_count", "sizes", None] == 12
    old, _ = exposition(lambda: streams)
    assert b"# TYPE floodmark_rows_in_total counter" in old, "the format of before OpenMetrics, too"


@pytest.mark.feature("N1", "N3")
def test_dashboard_and_alerts_ask_for_metrics_that_are_exported(streams: Sequence[Vitals]) -> None:
    names = exported(streams) | MISSING
    dashboard = json.loads((SERVING / "grafana.json").read_text("utf-8"))
    rules = yaml.safe_load((SERVING / "rules.yaml").read_text("utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    for text in (*asked, *(rule["expr"] for rule in alerts)):
        used = set(re.findall(r"\bfloodmark_\w+", text))
        assert used, text
        assert used <= names, text
        assert text.count("(") == text.count(")"), text
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) > 10
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]}
    assert len(places) == len(dashboard["panels"])
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    assert all({"summary", "description"} <= set(rule["annotations"]) for rule in alerts)
    watched = " ".join(rule["expr"] for rule in alerts)
    for what in ("watermark_lag", "last_commit", "quarantined", "state_bytes", "crashes"):
        assert what in watched


def test_the_page_of_the_documentation_names_each_family(streams: Sequence[Vitals]) -> None:
    named = set(re.findall(r"`(_?[a-z_]+)(?:\{\w+\})?`", PAGE.read_text("utf-8")))
    suffixes = [name for name in named if name.startswith("_")]
    named |= {f"floodmark_rows{suffix}" for suffix in suffixes}
    of_families = {family.name + ("_total" if family.kind == "counter" else "") for family in FAMILIES}
    assert of_families == {name for name in named if name.startswith("floodmark_")}


def test_whatever_a_stream_is_called_and_says_pages_show_it_as_text(store: Store, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"a line\n{HOSTILE}\n")
    store.deploy(deployed(HOSTILE, f"/lake/{HOSTILE}"))
    (deployment,) = store.deployments()
    driver = store.begin(deployment, str(tmp_path))
    store.update(driver.id, log=str(log))
    store.end(driver.id, "crashed", HOSTILE)
    node = {"id": HOSTILE, "kind": HOSTILE, "label": HOSTILE, "table": HOSTILE}
    measures.describe(store, deployment.stream, {"nodes": [node], "edges": []})
    metrics: dict[str, Any] = {HOSTILE: {"counter": 1}}
    for number in range(2):
        commit = Measure(
            history="t", number=number, at=time.time(), rows={HOSTILE: 1}, phases={HOSTILE: 1}, metrics=metrics
        )
        measures.record(store, deployment.stream, commit)
    seen = vitals(store, [deployment])
    for page in (pages.overview(seen), pages.detail(store, seen[0]), pages.missing(HOSTILE)):
        assert "<script" not in page
        assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.6, "1 min"), (61, "1 min 1 s"), (3600, "1 h"), (3605, "1 h"), (90_061, "1 d 1 h"), (-3, "0 s")],
)
def test_spans_are_shown_by_their_two_largest_units(seconds: float, text: str) -> None:
    assert describe_roughly(seconds) == text
