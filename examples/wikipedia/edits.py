"""Edits of an encyclopaedia in the shape of Wikimedia's stream of recent changes, made up by a seed: into files, or into a topic of Kafka.

    python edits.py                                    # two hours into inbox/edits, a file per ten minutes of arrival
    python edits.py --hours 24
    python edits.py --kafka localhost:9092             # the same edits into the topic "edits"

An event has the fields of ``mediawiki/recentchange`` 1.0.0 that this example reads, and some that it does not. Real ones come from
https://stream.wikimedia.org/v2/stream/recentchange, as lines that begin with ``data: ``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2025, 3, 1, 12, tzinfo=UTC)
WIKIS = {
    "enwiki": ("en.wikipedia.org", 30),
    "dewiki": ("de.wikipedia.org", 8),
    "frwiki": ("fr.wikipedia.org", 7),
    "eswiki": ("es.wikipedia.org", 6),
}
"""Wiki -> its server, and about how many of a hundred events are its own; the others are of Wikidata."""
ARTICLES, MINOR = 0.8, 0.3
"""Shares of events about articles, and of edits that are minor."""
PER_MINUTE, USERS, SLOWEST_SECONDS = 40, 400, 25
"""Events of a minute, people, and the longest way of an event to the stream: the watermark waits for half a minute."""


def edits(hours: float, seed: int = 1) -> Iterator[dict[str, object]]:
    """The events of some hours, in the order in which they arrive."""
    drawn, arrivals = random.Random(seed), []
    for number in range(int(hours * 60 * PER_MINUTE)):
        at = START + timedelta(minutes=number / PER_MINUTE, milliseconds=drawn.randrange(1_000))
        arrivals.append(
            (at + timedelta(seconds=drawn.expovariate(0.5) % SLOWEST_SECONDS), number, event(drawn, at, number))
        )
    for _, _, made in sorted(arrivals, key=lambda arrival: arrival[:2]):
        yield made


def event(drawn: random.Random, at: datetime, number: int) -> dict[str, object]:
    """One event: an edit, a new page, or something else, which has no length."""
    wiki = drawn.choices([*WIKIS, "wikidatawiki"], [*(share for _, share in WIKIS.values()), 49])[0]
    server = WIKIS.get(wiki, ("www.wikidata.org", 0))[0]
    kind = drawn.choices(["edit", "new", "categorize", "log"], [70, 5, 20, 5])[0]
    bot = drawn.random() < (0.6 if wiki == "wikidatawiki" else 0.15)
    person = drawn.randrange(8) if bot else int(drawn.paretovariate(0.7)) % USERS
    made: dict[str, object] = {
        "$schema": "/mediawiki/recentchange/1.0.0",
        "meta": {
            "id": str(uuid.UUID(int=drawn.getrandbits(128), version=4)),
            "dt": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z",
            "domain": server,
            "stream": "mediawiki.recentchange",
        },
        "id": 1_000_000 + number,
        "type": kind,
        "namespace": 0 if drawn.random() < ARTICLES else 1,
        "title": f"Page {int(drawn.paretovariate(0.9)) % 5000}",
        "comment": "",
        "timestamp": int(at.timestamp()),
        "user": f"Bot{person}" if bot else f"User{person}",
        "bot": bot,
        "server_name": server,
        "wiki": wiki,
    }
    if kind in {"edit", "new"}:
        old = None if kind == "new" else drawn.randrange(200, 50_000)
        made |= {
            "minor": drawn.random() < MINOR,
            "length": {"old": old, "new": max(0, (old or 0) + int(drawn.gauss(40, 300)))},
        }
    return made


def into_files(hours: float, folder: Path) -> int:
    """Write the events into files of ten minutes; returns their number. Each file gets its name when it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    made, size = list(edits(hours)), PER_MINUTE * 10
    for number in range(0, len(made), size):
        lines = [json.dumps(one) for one in made[number : number + size]]
        draft = folder / f"{number // size:04}.json.part"
        draft.write_text("\n".join(lines) + "\n", "utf-8")
        draft.rename(draft.with_suffix(""))
    return len(made)


def into_kafka(hours: float, servers: str) -> int:
    """Send the events to the topic ``edits``; returns their number."""
    from confluent_kafka import Producer  # noqa: PLC0415 - pip install 'floodmark[kafka]'
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415 - as above

    admin = AdminClient({"bootstrap.servers": servers})
    if "edits" not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic("edits", 1)])["edits"].result()
    producer, made = Producer({"bootstrap.servers": servers, "enable.idempotence": True}), list(edits(hours))
    for one in made:
        producer.produce("edits", json.dumps(one).encode(), partition=0)
        producer.poll(0)
    if left := producer.flush(60):
        sys.exit(f"{left:,} events were not taken by {servers}")
    return len(made)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--kafka", metavar="HOST:PORT")
    asked = parser.parse_args()
    if asked.kafka:
        print(f"{into_kafka(asked.hours, asked.kafka):,} events sent to the topic edits")
    else:
        print(f"{into_files(asked.hours, Path('inbox/edits')):,} events in inbox/edits")
