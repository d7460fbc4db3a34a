-- Nexmark: the queries 0 to 8 over the people, auctions and bids that examples/sql/nexmark.py writes.
--
--     python examples/sql/nexmark.py --bootstrap localhost:9092
--     penstock sql -f examples/sql/nexmark.sql
--
-- `date_time` and `expires` are milliseconds since 1970; as `timestamp`, the first becomes the event time. Records
-- that a stream writes have it too, and the events are of long ago: `retention` keeps them.

CREATE STREAM person (id BIGINT, name STRING, email_address STRING, city STRING, state STRING, date_time BIGINT)
  WITH (topic = 'person', format = 'json', timestamp = 'date_time');

CREATE STREAM auction (id BIGINT, item_name STRING, initial_bid BIGINT, reserve BIGINT, date_time BIGINT,
                       expires BIGINT, seller BIGINT, category BIGINT)
  WITH (topic = 'auction', format = 'json', timestamp = 'date_time');

CREATE STREAM bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, date_time BIGINT)
  WITH (topic = 'bid', format = 'json', timestamp = 'date_time');

-- Query 0: every bid, as it is.
CREATE STREAM q0 WITH (retention = '-1') AS
  SELECT auction, bidder, price, channel, date_time FROM bid;

-- Query 1: prices in euros.
CREATE STREAM q1 WITH (retention = '-1') AS
  SELECT auction, bidder, CAST(0.908 * price AS DOUBLE) AS price, date_time FROM bid;

-- Query 2: bids on some auctions.
CREATE STREAM q2 WITH (retention = '-1') AS
  SELECT auction, price FROM bid WHERE auction % 123 = 0;

-- Query 3: who sells things of category 10 in three states.
CREATE STREAM q3 WITH (retention = '-1') AS
  SELECT p.name, p.city, p.state, a.id AS auction
  FROM auction a JOIN person p WITHIN 1 HOUR ON a.seller = p.id
  WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- Query 4: the average of the highest bids, in each category.
CREATE STREAM bid_in_time WITH (retention = '-1') AS
  SELECT a.id AS auction, a.category, a.seller, a.expires, b.price, b.date_time
  FROM auction a JOIN bid b WITHIN 1 HOUR ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires
  PARTITION BY a.id;

CREATE TABLE winning_bid AS
  SELECT auction, MAX(category) AS category, MAX(seller) AS seller, MAX(expires) AS expires, MAX(price) AS price
  FROM bid_in_time
  GROUP BY auction;

CREATE TABLE q4 AS
  SELECT category, AVG(price) AS average FROM winning_bid GROUP BY category;

-- Query 5: the auctions with the most bids in 10 seconds, every 2 seconds.
CREATE TABLE bid_count AS
  SELECT auction, COUNT(*) AS bids
  FROM bid WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 2 SECONDS)
  GROUP BY auction;

CREATE TABLE q5 AS
  SELECT window_start, window_end, auction, bids
  FROM (SELECT *, RANK() OVER (PARTITION BY window_start ORDER BY bids DESC) AS place FROM bid_count)
  WHERE place = 1;

-- Query 6: of each seller, the average of the last ten prices, at each auction.
CREATE TABLE q6 AS
  SELECT auction, seller,
         AVG(price) OVER (PARTITION BY seller ORDER BY expires, auction
                          ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
  FROM winning_bid;

-- Query 7: the highest bid of each 10 seconds.
CREATE TABLE q7 AS
  SELECT MAX(price) AS price, MAX(STRUCT(price, auction, bidder)).auction AS auction,
         MAX(STRUCT(price, auction, bidder)).bidder AS bidder
  FROM bid WINDOW TUMBLING (SIZE 10 SECONDS);

-- Query 8: who came and began to sell in the same 10 seconds.
CREATE STREAM new_seller WITH (retention = '-1') AS
  SELECT p.id, p.name, p.date_time DIV 10000 * 10000 AS since
  FROM person p JOIN auction a WITHIN 10 SECONDS
    ON p.id = a.seller AND p.date_time DIV 10000 = a.date_time DIV 10000
  PARTITION BY p.id;

CREATE TABLE q8 AS
  SELECT id, name, since, COUNT(*) AS auctions FROM new_seller GROUP BY id, name, since;
