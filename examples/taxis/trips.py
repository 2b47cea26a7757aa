"""Trips of yellow cabs in the shape of the files of New York's Taxi and Limousine Commission, made up by a seed: Parquet files, or a topic of Kafka.

    python trips.py                                    # three days into inbox/trips, a file per day
    python trips.py --days 31
    python trips.py --kafka localhost:9092             # the same trips into the topic "trips"

The columns are those of ``yellow_tripdata_2025-01.parquet`` and their types. Times are of New York's clocks, without an offset; rows are in the order in which
meters have reported, which is not that of time; a few trips are broken as some in the real files are.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2025, 1, 6)  # noqa: DTZ001 - a Monday, by local clocks
RESET = datetime(2002, 12, 31, 23)  # noqa: DTZ001 - what a meter says that has lost its battery, as some in the real files
BROKEN, TAKEN_BACK, BY_CARD, UNCOUNTED = 3, 0.005, 0.8, 0.05
"""Trips of a day whose meter was reset; shares of trips that were taken back, were paid by card, have no number of passengers."""
PER_HOUR = [18, 11, 7, 5, 5, 8, 19, 33, 42, 40, 38, 40, 42, 43, 47, 50, 51, 58, 62, 56, 50, 48, 42, 30]
"""Trips that begin in an hour of the day."""
ZONES = {
    132: "JFK Airport",
    138: "LaGuardia Airport",
    161: "Midtown Center",
    186: "Penn Station",
    230: "Times Square",
    236: "Upper East Side North",
    79: "East Village",
    13: "Battery Park City",
}
"""Zone -> its name; there are 265 in the city."""
SCHEMA = pa.schema(
    [
        ("VendorID", pa.int32()),
        ("tpep_pickup_datetime", pa.timestamp("us")),
        ("tpep_dropoff_datetime", pa.timestamp("us")),
        ("passenger_count", pa.int64()),
        ("trip_distance", pa.float64()),
        ("RatecodeID", pa.int64()),
        ("store_and_fwd_flag", pa.string()),
        ("PULocationID", pa.int32()),
        ("DOLocationID", pa.int32()),
        ("payment_type", pa.int64()),
        ("fare_amount", pa.float64()),
        ("extra", pa.float64()),
        ("mta_tax", pa.float64()),
        ("tip_amount", pa.float64()),
        ("tolls_amount", pa.float64()),
        ("improvement_surcharge", pa.float64()),
        ("total_amount", pa.float64()),
        ("congestion_surcharge", pa.float64()),
        ("Airport_fee", pa.float64()),
        ("cbd_congestion_fee", pa.float64()),
    ]
)


def days(count: int, seed: int = 1) -> Iterator[list[dict[str, Any]]]:
    """The trips of some days, each in the order in which meters have reported."""
    drawn = random.Random(seed)
    for day in range(count):
        begin = START + timedelta(days=day)
        trips = [
            trip(drawn, begin + timedelta(hours=hour, seconds=drawn.randrange(3600)))
            for hour, share in enumerate(PER_HOUR)
            for _ in range(share)
        ]
        for at in drawn.sample(range(len(trips)), BROKEN):
            trips[at] |= dict.fromkeys(("tpep_pickup_datetime", "tpep_dropoff_datetime"), RESET + timedelta(seconds=at))
        yield sorted(
            trips, key=lambda one: one["tpep_dropoff_datetime"] + timedelta(minutes=drawn.expovariate(0.2) % 60)
        )


def trip(drawn: random.Random, pickup: datetime) -> dict[str, Any]:
    """One trip; one of two hundred is taken back, with negative amounts."""
    origin, target = drawn.choices([*ZONES], [3, 2, 5, 4, 4, 4, 2, 1], k=2)
    airport = {origin, target} & {132, 138}
    miles = round(drawn.uniform(9, 18) if airport else drawn.lognormvariate(0.6, 0.6), 2)
    minutes = miles * drawn.uniform(2.5, 7) + 3
    sign = -1 if drawn.random() < TAKEN_BACK else 1
    fare = sign * round(3 + miles * 3.5 + minutes * 0.35, 1)
    card = drawn.random() < BY_CARD
    tip = round(fare * drawn.choice([0, 0.15, 0.2, 0.25]), 2) if card and sign > 0 else 0.0
    fees = {
        "extra": sign * 1.0,
        "mta_tax": sign * 0.5,
        "improvement_surcharge": sign * 1.0,
        "congestion_surcharge": sign * 2.5,
    }
    fees |= {
        "Airport_fee": sign * 1.75 if origin in airport else 0.0,
        "cbd_congestion_fee": sign * 0.75,
        "tolls_amount": 0.0,
    }
    return {
        "VendorID": drawn.choice([1, 2]),
        "tpep_pickup_datetime": pickup,
        "tpep_dropoff_datetime": pickup + timedelta(seconds=round(minutes * 60)),
        "passenger_count": None if drawn.random() < UNCOUNTED else drawn.choice([1, 1, 1, 2, 3]),
        "trip_distance": miles,
        "RatecodeID": 1,
        "store_and_fwd_flag": "N",
        "PULocationID": origin,
        "DOLocationID": target,
        "payment_type": 1 if card else 2,
        "fare_amount": fare,
        "tip_amount": tip,
        "total_amount": round(fare + tip + sum(fees.values()), 2),
        **fees,
    }


def into_files(count: int, folder: Path) -> int:
    """Write a file per day; returns the number of trips. Each file gets its name when it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = 0
    for day, trips in enumerate(days(count)):
        file = folder / f"yellow_tripdata_{START + timedelta(days=day):%Y-%m-%d}.parquet"
        pq.write_table(pa.Table.from_pylist(trips, schema=SCHEMA), f"{file}.part")
        Path(f"{file}.part").rename(file)
        rows += len(trips)
    return rows


def into_kafka(count: int, servers: str) -> int:
    """Send the trips to the topic ``trips``, as JSON with the same columns; returns their number."""
    from confluent_kafka import Producer  # noqa: PLC0415 - pip install 'floodmark[kafka]'
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415 - as above

    admin = AdminClient({"bootstrap.servers": servers})
    if "trips" not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic("trips", 1)])["trips"].result()
    producer, rows = Producer({"bootstrap.servers": servers, "enable.idempotence": True}), 0
    for trips in days(count):
        for made in trips:
            producer.produce("trips", json.dumps(made, default=datetime.isoformat).encode(), partition=0)
            producer.poll(0)
        rows += len(trips)
    if left := producer.flush(60):
        sys.exit(f"{left:,} trips were not taken by {servers}")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--kafka", metavar="HOST:PORT")
    asked = parser.parse_args()
    if asked.kafka:
        print(f"{into_kafka(asked.days, asked.kafka):,} trips sent to the topic trips")
    else:
        print(f"{into_files(asked.days, Path('inbox/trips')):,} trips in inbox/trips")
