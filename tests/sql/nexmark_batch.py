"""What the Nexmark queries must give, computed from all events at once with pandas: no streams, no SQL.

Each query gives rows as tuples, sorted, in the order of the columns of `examples/sql/nexmark.sql`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from examples.sql.nexmark import Events

HOUR_MS = 3_600_000
WINDOW_MS = 10_000
HOP_MS = 2_000
Row = tuple[Any, ...]


def _rows(frame: pd.DataFrame) -> list[Row]:
    return sorted(frame.itertuples(index=False, name=None))


def q0(events: Events) -> list[Row]:
    return _rows(events.bid.to_pandas()[["auction", "bidder", "price", "channel", "date_time"]])


def q1(events: Events) -> list[Row]:
    """Prices in tenths of a cent, as whole numbers: 0.908 is no binary fraction."""
    bids = events.bid.to_pandas()
    bids["price"] = bids["price"] * 908
    return _rows(bids[["auction", "bidder", "price", "date_time"]])


def q2(events: Events) -> list[Row]:
    bids = events.bid.to_pandas()
    return _rows(bids[bids["auction"] % 123 == 0][["auction", "price"]])


def q3(events: Events) -> list[Row]:
    people, auctions = events.person.to_pandas(), events.auction.to_pandas()
    people = people[people["state"].isin(["OR", "ID", "CA"])]
    auctions = auctions[auctions["category"] == 10]
    both = auctions.merge(people, left_on="seller", right_on="id", suffixes=("_a", "_p"))
    both = both[(both["date_time_a"] - both["date_time_p"]).abs() <= HOUR_MS]
    return _rows(both[["name", "city", "state", "id_a"]])


def winning_bids(events: Events) -> pd.DataFrame:
    """Of each auction that had a bid before it ended: auction, category, seller, expires, price."""
    auctions = events.auction.to_pandas().set_index("id")
    bids = events.bid.to_pandas()
    ends = bids["auction"].map(auctions["expires"])
    begins = bids["auction"].map(auctions["date_time"])
    in_time = bids[(bids["date_time"] >= begins) & (bids["date_time"] <= ends)]
    prices = in_time.groupby("auction")["price"].max()
    return auctions.loc[prices.index, ["category", "seller", "expires"]].assign(price=prices).reset_index()


def q4(events: Events) -> list[Row]:
    won = winning_bids(events)
    totals: dict[int, list[int]] = {}
    for category, price in zip(won["category"], won["price"]):
        totals.setdefault(int(category), []).append(int(price))
    return sorted((category, sum(prices) / len(prices)) for category, prices in totals.items())


def bid_counts(events: Events) -> pd.DataFrame:
    """start, auction, bids, of every hopping window that has bids."""
    bids = events.bid.to_pandas()[["auction", "date_time"]]
    pieces = []
    for back in range(WINDOW_MS // HOP_MS):
        start = bids["date_time"] // HOP_MS * HOP_MS - back * HOP_MS
        pieces.append(pd.DataFrame({"start": start, "auction": bids["auction"]}))
    return pd.concat(pieces).groupby(["start", "auction"]).size().rename("bids").reset_index()


def q5(events: Events) -> list[Row]:
    """Window start in milliseconds, its end, auction, bids."""
    counts = bid_counts(events)
    most = counts.groupby("start")["bids"].transform("max")
    hot = counts[counts["bids"] == most]
    return sorted(
        (start, start + WINDOW_MS, auction, bids)
        for start, auction, bids in hot.itertuples(index=False, name=None)
    )


def q6(events: Events) -> list[Row]:
    rows: list[Row] = []
    for seller, sold in winning_bids(events).sort_values(["expires", "auction"]).groupby("seller"):
        prices = sold["price"].tolist()
        for place, auction in enumerate(sold["auction"]):
            last = prices[max(0, place - 9) : place + 1]
            rows.append((auction, seller, sum(last) / len(last)))
    return sorted(rows)


def q7(events: Events) -> list[Row]:
    """Window start in milliseconds, its end, price, auction, bidder."""
    best: dict[int, Row] = {}
    for auction, bidder, price, _, time in events.bid.to_pandas().itertuples(index=False, name=None):
        start = time // WINDOW_MS * WINDOW_MS
        best[start] = max(best.get(start, (0, 0, 0)), (price, auction, bidder))
    return sorted((start, start + WINDOW_MS, *row) for start, row in best.items())


def q8(events: Events) -> list[Row]:
    people, auctions = events.person.to_pandas(), events.auction.to_pandas()
    sold: dict[tuple[int, int], int] = {}
    for seller, time in zip(auctions["seller"], auctions["date_time"]):
        window = (seller, time // WINDOW_MS)
        sold[window] = sold.get(window, 0) + 1
    rows = []
    for person, name, time in zip(people["id"], people["name"], people["date_time"]):
        count = sold.get((person, time // WINDOW_MS))
        if count:
            rows.append((person, name, time // WINDOW_MS * WINDOW_MS, count))
    return sorted(rows)


QUERIES: dict[str, Callable[[Events], list[Row]]] = {
    "q0": q0, "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q6": q6, "q7": q7, "q8": q8,
}  # fmt: skip
