"""The ETL of two databases: changes to topics, joined and summed by Spark, into Delta, Redis and a database.

Starts a broker, a Connect worker and the pipeline of this directory, fills the two databases, and checks
that what arrived is what the databases hold. It needs two empty databases and a Redis:

    python examples/etl/run.py --shop postgresql://USER:PASSWORD@HOST:PORT/DATABASE \\
        --crm mysql://USER:PASSWORD@HOST:PORT/DATABASE --redis redis://HOST:PORT
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import psycopg2
import pymysql
import redis
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from penstock.demo.children import Child, ChildFailed

HERE = Path(__file__).parent
TOPICS = ("customers", "orders", "revenue")
SLOT = PUBLICATION = "penstock_etl"
CITIES = ("Athens", "Berlin", "Cairo", "Delhi")
DAY = datetime(2026, 1, 5, 8, tzinfo=UTC)
HOUR, LATENESS = timedelta(hours=1), timedelta(hours=2)
CUSTOMERS, ORDERS, ROUNDS = 30, 600, 3

Window = tuple[str, str]


# The two databases


def connect_shop(url: SplitResult) -> Any:
    shop = psycopg2.connect(url.geturl())
    shop.autocommit = True
    with shop.cursor() as cursor:
        cursor.execute("SET TIME ZONE 'UTC'")
    return shop


def connect_crm(url: SplitResult) -> Any:
    return pymysql.connect(
        host=url.hostname,
        port=url.port or 3306,
        user=unquote(url.username or ""),
        password=unquote(url.password or ""),
        database=url.path.lstrip("/"),
        autocommit=True,
    )


def execute(database: Any, statement: str, *rows: tuple[Any, ...]) -> None:
    """For each of the rows, in one transaction."""
    with database.cursor() as cursor:
        if rows:
            cursor.execute("BEGIN")
            cursor.executemany(statement, rows)
            cursor.execute("COMMIT")
        else:
            cursor.execute(statement)


def query(database: Any, statement: str) -> list[tuple[Any, ...]]:
    with database.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def create_tables(shop: Any, crm: Any) -> None:
    execute(
        shop,
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, amount numeric(10, 2), status text,"
        " ordered_at timestamptz)",
    )
    execute(
        shop,
        "CREATE TABLE revenue (city text, hour timestamp, orders bigint, revenue numeric(12, 2),"
        " PRIMARY KEY (city, hour))",
    )
    execute(crm, "CREATE TABLE customers (id bigint PRIMARY KEY, name varchar(80), city varchar(80))")


def add_customers(crm: Any, *numbers: int) -> None:
    rows = [(number, f"customer {number}", CITIES[number % len(CITIES)]) for number in numbers]
    execute(crm, "INSERT INTO customers VALUES (%s, %s, %s)", *rows)


def add_orders(shop: Any, chance: random.Random, numbers: range, customers: int) -> None:
    """A third of them up to half an hour out of order."""
    rows = []
    for number in numbers:
        late = timedelta(minutes=chance.randrange(30)) if number % 3 == 0 else timedelta()
        at = DAY + timedelta(seconds=72 * number) - late
        amount = Decimal(chance.randrange(100, 50_000)) / 100
        rows.append((number, chance.randrange(customers), amount, "new", at))
    execute(shop, "INSERT INTO orders VALUES (%s, %s, %s, %s, %s)", *rows)


# What arrived, and what must have


@dataclass(frozen=True)
class Results:
    """Orders by id, windows by city and hour. The first three are also what is expected."""

    orders: dict[int, tuple[Any, ...]]
    windows: dict[Window, tuple[int, Decimal]]
    twice: list[Any] = field(default_factory=list)
    in_redis: dict[Window, tuple[int, Decimal]] = field(default_factory=dict)
    in_database: dict[Window, tuple[int, Decimal]] = field(default_factory=dict)


def expected(shop: Any, crm: Any) -> Results:
    """By the databases: each order with its customer; the windows that no order can change any more."""
    customers = {number: (name, city) for number, name, city in query(crm, "SELECT * FROM customers")}
    orders, windows = {}, defaultdict(list)
    rows = query(shop, "SELECT id, customer, amount, status, ordered_at FROM orders")
    watermark = max(row[4] for row in rows) - LATENESS
    for number, customer, amount, status, at in rows:
        name, city = customers[customer]
        orders[number] = (customer, name, city, amount, status, at)
        hour = at.replace(minute=0, second=0)
        if hour + HOUR <= watermark:
            windows[city, f"{hour:%Y-%m-%d %H:%M}"].append(amount)
    return Results(orders, {window: (len(some), sum(some, Decimal())) for window, some in windows.items()})


def arrived(shop: Any, cache: Any, bootstrap: str, table: Path) -> Results:
    rows = []
    if DeltaTable.is_deltatable(str(table)):
        rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    columns = ("customer", "name", "city", "amount", "status", "ordered_at")
    orders = {row["id"]: tuple(row[name] for name in columns) for row in rows}
    records = [json.loads(value) for _, value in read_topic(bootstrap, "revenue")]
    windows = Counter((record["city"], record["hour"]) for record in records)
    hashes = [cache.hgetall(key) for key in cache.scan_iter("revenue:*", count=1000)]
    sums = "SELECT city, to_char(hour, 'YYYY-MM-DD HH24:MI'), orders, revenue FROM revenue"
    return Results(
        orders,
        {(each["city"], each["hour"]): (each["orders"], Decimal(each["revenue"])) for each in records},
        [window for window, count in windows.items() if count > 1] + [len(rows)] * (len(rows) > len(orders)),
        {(each["city"], each["hour"]): (int(each["orders"]), Decimal(each["revenue"])) for each in hashes},
        {(city, hour): (orders, revenue) for city, hour, orders, revenue in query(shop, sums)},
    )


def checks(wanted: Results, found: Results) -> dict[str, str]:
    """Each promise, with what is wrong with it."""
    return {
        "every order is in the Delta table, as it is now, with its customer": differences(
            wanted.orders, found.orders
        ),
        "the topic has the sums of each city and closed hour": differences(wanted.windows, found.windows),
        "no order and no hour is there twice": f"twice: {found.twice[:3]}" if found.twice else "",
        "Redis has the same sums": differences(wanted.windows, found.in_redis),
        "the database has the same sums": differences(wanted.windows, found.in_database),
    }


def differences(wanted: dict[Any, Any], found: dict[Any, Any]) -> str:
    wrong = [key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)]
    if not wrong:
        return ""
    key = min(wrong)
    return (
        f"{len(wrong)} of {len(wanted)} differ, as {key}: {wanted.get(key)} expected, {found.get(key)} found"
    )


# The platform


def read_topic(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Keys and values of the records that are committed now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "etl-check",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: list[tuple[bytes, bytes]] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(30)
            assert message is not None, f"no answer of the broker at {bootstrap}"
            error = message.error()
            if error is None:
                found.append((message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found


def until(done: Any, what: str, children: list[Child], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        for child in children:
            child.check()
        if time.monotonic() > deadline:
            raise ChildFailed(f"not within {seconds:g} s: {what}")
        time.sleep(0.2)


def environment(shop: SplitResult, crm: SplitResult, cache: str) -> dict[str, str]:
    """What the files in connectors/ refer to."""
    found = {"SHOP_URL": shop.geturl(), "REDIS_URI": cache}
    for name, url, port in (("SHOP", shop, 5432), ("CRM", crm, 3306)):
        found[f"{name}_HOST"] = url.hostname or "127.0.0.1"
        found[f"{name}_PORT"] = str(url.port or port)
        found[f"{name}_USER"] = unquote(url.username or "")
        found[f"{name}_PASSWORD"] = unquote(url.password or "")
        found[f"{name}_DATABASE"] = url.path.lstrip("/")
    return found


@contextmanager
def directory(given: str | None) -> Iterator[Path]:
    if given is None:
        with tempfile.TemporaryDirectory(prefix="penstock-etl-") as name:
            yield Path(name)
    else:
        Path(given).mkdir(parents=True)
        yield Path(given).resolve()


def start_platform(stack: ExitStack, data: Path) -> tuple[str, str, list[Child]]:
    """A broker, and a worker whose sources write each record and its offset in one transaction."""
    broker = Child(
        "the broker",
        ["up", "--data", str(data / "broker"), "--port", "0", "--no-connect", "--no-console", "--no-registry",
         "--ready-file", str(data / "broker.json")],
        data / "broker.log",
    )  # fmt: skip
    stack.callback(broker.stop, 30)
    bootstrap: str = broker.wait_until_ready(data / "broker.json", 60)["bootstrap"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, 1) for topic in TOPICS]).values():
        created.result()
    worker = Child(
        "the Connect worker",
        ["connect", "-b", bootstrap, "--port", "0", "--ready-file", str(data / "worker.json"),
         "--set", "exactly.once.source.support=enabled"],
        data / "worker.log",
    )  # fmt: skip
    stack.callback(worker.stop, 30)
    return bootstrap, worker.wait_until_ready(data / "worker.json", 60)["connect"], [broker, worker]


def drop_slot(url: SplitResult) -> None:
    """Otherwise the database keeps its WAL for this run for ever."""
    with closing(connect_shop(url)) as shop:
        execute(shop, f"DROP PUBLICATION IF EXISTS {PUBLICATION}")
        execute(
            shop,
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            f"WHERE slot_name = '{SLOT}' AND database = current_database()",
        )


def run(arguments: argparse.Namespace, data: Path, stack: ExitStack) -> bool:
    shop_url, crm_url = urlsplit(arguments.shop), urlsplit(arguments.crm)
    shop = stack.enter_context(closing(connect_shop(shop_url)))
    crm = stack.enter_context(closing(connect_crm(crm_url)))
    cache = stack.enter_context(closing(redis.Redis.from_url(arguments.redis, decode_responses=True)))
    create_tables(shop, crm)
    stack.callback(drop_slot, shop_url)
    add_customers(crm, *range(CUSTOMERS))
    os.environ.update(environment(shop_url, crm_url, arguments.redis))

    bootstrap, worker, children = start_platform(stack, data)
    project, table = data / "project", data / "tables" / "orders"
    shutil.copytree(HERE, project, ignore=shutil.ignore_patterns("__pycache__", "run.py"))
    os.environ.update(PENSTOCK_BOOTSTRAP=bootstrap, ETL_TABLE=str(table))
    pipeline = Child(
        "the pipeline",
        ["pipeline", "run", str(project), "--connect", worker, "--master", "local[2]"],
        data / "pipeline.log",
    )
    stack.callback(pipeline.stop, 60)
    children.append(pipeline)
    print(f"Broker {bootstrap}, Connect worker {worker}; the pipeline is starting.", flush=True)

    def known(customers: int) -> None:
        """An order comes after its customer: who is not known to a batch would be missing in it."""
        until(
            lambda: len({key for key, _ in read_topic(bootstrap, "customers")}) >= customers,
            f"{customers} customers in the topic",
            children,
            arguments.wait,
        )

    chance = random.Random(7)
    for round_number in range(ROUNDS):
        customers = CUSTOMERS + round_number
        known(customers)
        first = round_number * ORDERS // ROUNDS
        add_orders(shop, chance, range(first, first + ORDERS // ROUNDS), customers)
        print(f"{first + ORDERS // ROUNDS} orders of {customers} customers", flush=True)
        add_customers(crm, customers)
    execute(shop, "UPDATE orders SET status = 'shipped' WHERE id % 7 = 0")
    # An order of the next day: no more of this one are waited for.
    execute(shop, f"INSERT INTO orders VALUES ({ORDERS}, 0, 1, 'new', '{DAY + timedelta(days=1)}')")

    wanted, outcome = expected(shop, crm), {"": "not looked yet"}
    deadline = time.monotonic() + arguments.wait
    while any(outcome.values()) and time.monotonic() < deadline:
        for child in children:
            child.check()
        time.sleep(0.5)
        outcome = checks(wanted, arrived(shop, cache, bootstrap, table))
    subprocess.run([sys.executable, "-m", "penstock", "pipeline", "status", str(project)], check=False)
    print(f"{len(wanted.orders)} orders, {len(wanted.windows)} closed hours of cities")
    for promise, problem in outcome.items():
        print(f"  {'FAILED' if problem else 'ok    '}  {promise}{': ' if problem else ''}{problem}")
    return not any(outcome.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shop", required=True, help="PostgreSQL with wal_level=logical: orders, and the sums"
    )
    parser.add_argument("--crm", required=True, help="MariaDB or MySQL with a row binlog: customers")
    parser.add_argument("--redis", required=True)
    parser.add_argument(
        "--data", help="a new directory for records, tables and logs; default: a temporary one"
    )
    parser.add_argument("--wait", type=float, default=180, help="seconds until everything must have arrived")
    arguments = parser.parse_args()
    with directory(arguments.data) as data:
        try:
            with ExitStack() as stack:
                return 0 if run(arguments, data, stack) else 1
        except (ChildFailed, psycopg2.Error, pymysql.err.Error, redis.RedisError) as error:
            print(f"etl: {str(error).strip()}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
