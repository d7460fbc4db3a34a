"""The Nexmark events: people, auctions and bids of an auction house, as JSON text in three topics.

    python examples/sql/nexmark.py --bootstrap localhost:9092 --events 100000
    penstock sql -f examples/sql/nexmark.sql

Of 50 events one is a person, 3 are auctions and 46 are bids, in the order of their times. Half of the bids go
to an auction that is hot just then, three quarters of them come from a hot bidder, and three quarters of the
auctions from a hot seller; the others are spread over what is current. The same seed gives the same events,
and a longer run begins with those of a shorter one. A million events are made in a second or two.

After P. Tucker, K. Tufte, V. Papadimos, D. Maier: NEXMark, a benchmark for queries over data streams.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PERSONS, AUCTIONS, BIDS = 1, 3, 46
CYCLE = PERSONS + AUCTIONS + BIDS
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
CURRENT_PEOPLE, CURRENT_AUCTIONS = 1000, 100
HOT_EVERY = 100
"""Hot are the people and auctions whose number is a multiple of this: the newest of them at the time."""
START_MS = 1_735_689_600_000
"""2025-01-01T00:00:00Z."""
CHUNK = CYCLE * 4000
"""Events that are made at once; random numbers are drawn chunk by chunk."""

_FIRST_NAMES = ("Ada", "Ben", "Cleo", "Dora", "Emil", "Fay", "Gus", "Hedy", "Ivo", "June", "Kaj", "Lena")
_LAST_NAMES = ("Abbott", "Bauer", "Cho", "Diaz", "Egede", "Faber", "Grieg", "Holm", "Ito", "Jansen")
_PLACES = (
    ("Phoenix", "AZ"), ("Los Angeles", "CA"), ("San Francisco", "CA"), ("Boise", "ID"), ("Portland", "OR"),
    ("Bend", "OR"), ("Redmond", "WA"), ("Seattle", "WA"), ("Kent", "WA"), ("Cheyenne", "WY"),
)  # fmt: skip
_CHANNELS = ("Apple", "Google", "Facebook", "Baidu")

TOPICS: Mapping[str, str] = {"person": "id", "auction": "id", "bid": "auction"}
"""The topics, and the column that is the key of their records."""


@dataclass(frozen=True, slots=True)
class Events:
    """Some events, each kind as a table; `date_time` is in milliseconds since 1970."""

    person: pa.Table
    auction: pa.Table
    bid: pa.Table

    def table(self, topic: str) -> pa.Table:
        table: pa.Table = getattr(self, topic)
        return table


def events(count: int, *, seed: int = 17, per_second: int = 10_000) -> Iterator[Events]:
    """The first `count` events, `per_second` of them in a second of their own time, in chunks."""
    for first in range(0, count, CHUNK):
        # Whole chunks are drawn, so that a shorter run is a prefix of a longer one.
        random = np.random.default_rng((seed, first // CHUNK))
        numbers = np.arange(first, first + CHUNK)
        place = numbers % CYCLE
        persons = numbers[place < PERSONS]
        auctions = numbers[(place >= PERSONS) & (place < PERSONS + AUCTIONS)]
        bids = numbers[place >= PERSONS + AUCTIONS]
        made = Events(
            _persons(persons, random, per_second),
            _auctions(auctions, random, per_second),
            _bids(bids, random, per_second),
        )
        if first + CHUNK > count:
            made = Events(
                made.person.slice(0, int((persons < count).sum())),
                made.auction.slice(0, int((auctions < count).sum())),
                made.bid.slice(0, int((bids < count).sum())),
            )
        yield made


def whole(count: int, *, seed: int = 17, per_second: int = 10_000) -> Events:
    """All of them in one piece."""
    chunks = list(events(count, seed=seed, per_second=per_second))
    return Events(*(pa.concat_tables(chunk.table(topic) for chunk in chunks) for topic in TOPICS))


def json_values(table: pa.Table) -> pa.Array:
    """Each row as a JSON object; no text in these tables needs an escape."""
    pieces: list[object] = []
    for place, name in enumerate(table.column_names):
        column = table.column(name).combine_chunks()
        text = pa.types.is_string(column.type)
        pieces.append(f'{"," if place else "{"}"{name}":' + ('"' if text else ""))
        pieces.append(column if text else column.cast(pa.string()))
        if text:
            pieces.append('"')
    return pc.binary_join_element_wise(*pieces, "}", "")


def _times(numbers: np.ndarray, per_second: int) -> np.ndarray:
    return START_MS + numbers * 1000 // per_second


def _last_person(numbers: np.ndarray) -> np.ndarray:
    return numbers // CYCLE


def _last_auction(numbers: np.ndarray) -> np.ndarray:
    """The number of the newest auction at that event; -1 before the first."""
    return numbers // CYCLE * AUCTIONS + np.minimum(numbers % CYCLE, AUCTIONS) - 1


def _spread(newest: np.ndarray, current: int, random: np.random.Generator) -> np.ndarray:
    """One of the newest so many of each."""
    return newest - (random.random(len(newest)) * np.minimum(newest + 1, current)).astype(np.int64)


def _words(words: tuple[str, ...], chosen: np.ndarray) -> pa.Array:
    return pa.array(words).take(pa.array(chosen))


def _prices(random: np.random.Generator, count: int) -> np.ndarray:
    """In cents, from 1 to a million dollars, as many of each magnitude."""
    return np.round(10.0 ** (random.random(count) * 6) * 100).astype(np.int64)


def _persons(numbers: np.ndarray, random: np.random.Generator, per_second: int) -> pa.Table:
    count = len(numbers)
    first = _words(_FIRST_NAMES, random.integers(len(_FIRST_NAMES), size=count))
    last = _words(_LAST_NAMES, random.integers(len(_LAST_NAMES), size=count))
    place = random.integers(len(_PLACES), size=count)
    ids = FIRST_ID + _last_person(numbers)
    return pa.table({
        "id": ids,
        "name": pc.binary_join_element_wise(first, last, " "),
        "email_address": pc.binary_join_element_wise(
            pc.utf8_lower(first), pa.array(ids).cast(pa.string()), "@example.com", ""
        ),
        "city": _words(tuple(city for city, _ in _PLACES), place),
        "state": _words(tuple(state for _, state in _PLACES), place),
        "date_time": _times(numbers, per_second),
    })  # fmt: skip


def _auctions(numbers: np.ndarray, random: np.random.Generator, per_second: int) -> pa.Table:
    count = len(numbers)
    times = _times(numbers, per_second)
    newest = _last_person(numbers)
    hot = random.random(count) < 0.75
    sellers = np.where(hot, newest // HOT_EVERY * HOT_EVERY, _spread(newest, CURRENT_PEOPLE, random))
    # As long as it takes, on average, until so many others have begun.
    length = CURRENT_AUCTIONS * CYCLE * 1000 / AUCTIONS / per_second
    initial = _prices(random, count)
    ids = FIRST_ID + _last_auction(numbers)
    return pa.table({
        "id": ids,
        "item_name": pc.binary_join_element_wise("item", pa.array(ids).cast(pa.string()), " "),
        "initial_bid": initial,
        "reserve": initial + _prices(random, count),
        "date_time": times,
        "expires": times + 1 + (random.random(count) * 2 * length).astype(np.int64),
        "seller": FIRST_ID + sellers,
        "category": FIRST_CATEGORY + random.integers(CATEGORIES, size=count),
    })  # fmt: skip


def _bids(numbers: np.ndarray, random: np.random.Generator, per_second: int) -> pa.Table:
    count = len(numbers)
    auction, person = _last_auction(numbers), _last_person(numbers)
    hot_auction, hot_bidder = random.random(count) < 0.5, random.random(count) < 0.75
    bidders = np.where(
        hot_bidder,
        np.minimum(person // HOT_EVERY * HOT_EVERY + 1, person),
        _spread(person, CURRENT_PEOPLE, random),
    )
    auctions = np.where(
        hot_auction, auction // HOT_EVERY * HOT_EVERY, _spread(auction, CURRENT_AUCTIONS, random)
    )
    return pa.table({
        "auction": FIRST_ID + auctions,
        "bidder": FIRST_ID + bidders,
        "price": _prices(random, count),
        "channel": _words(_CHANNELS, random.integers(len(_CHANNELS), size=count)),
        "date_time": _times(numbers, per_second),
    })  # fmt: skip


def produce(bootstrap: str, count: int, *, partitions: int, seed: int, per_second: int) -> None:
    """Makes the topics where they are not there, and writes the events to them."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    there = admin.list_topics(timeout=30).topics
    # The events are of long ago, and would be deleted after the seven days for which topics keep records.
    keep = {"retention.ms": "-1"}
    if missing := [NewTopic(topic, partitions, 1, config=keep) for topic in TOPICS if topic not in there]:
        for future in admin.create_topics(missing).values():
            future.result()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "partitioner": "murmur2_random",
         "queue.buffering.max.messages": 200_000}
    )  # fmt: skip
    for chunk in events(count, seed=seed, per_second=per_second):
        for topic, key in TOPICS.items():
            table = chunk.table(topic)
            keys = table.column(key).cast(pa.string()).to_pylist()
            times = table.column("date_time").to_pylist()
            for name, value, time in zip(keys, json_values(table).to_pylist(), times):
                while True:
                    try:
                        producer.produce(topic, value, name, timestamp=time)
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.poll(0)
    producer.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the Nexmark events to topics.")
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--per-second", type=int, default=10_000, help="of the events' own time")
    parser.add_argument("--seed", type=int, default=17)
    given = parser.parse_args()
    produce(
        given.bootstrap,
        given.events,
        partitions=given.partitions,
        seed=given.seed,
        per_second=given.per_second,
    )
    print(f"{given.events} events in the topics {', '.join(TOPICS)}")


if __name__ == "__main__":
    main()
