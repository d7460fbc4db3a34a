-- Patterns over several records, as lectures on event processing show them. Records may come up to ten seconds
-- late, and are matched in the order of their times.

CREATE STREAM thermometers (sensor STRING, degrees DOUBLE, at BIGINT)
  WITH (topic = 'thermometers', format = 'json', timestamp = 'at', watermark = '10 seconds', partitions = 2);
CREATE STREAM quotes (stock STRING, price DECIMAL(10, 2), at BIGINT)
  WITH (topic = 'quotes', format = 'json', timestamp = 'at', watermark = '10 seconds', partitions = 2);
CREATE STREAM logins (account STRING, ok BOOLEAN, at BIGINT)
  WITH (topic = 'logins', format = 'json', timestamp = 'at', watermark = '10 seconds', partitions = 2);

-- A temperature that reaches 30 degrees: when it does, and again only after it was lower.
CREATE STREAM heat AS
  SELECT sensor, before, degrees FROM thermometers MATCH_RECOGNIZE (
    PARTITION BY sensor ORDER BY at
    MEASURES COOL.degrees AS before, HOT.degrees AS degrees
    PATTERN (COOL HOT) WITHIN 1 HOUR
    DEFINE COOL AS degrees < 30, HOT AS degrees >= 30
  );

-- A stock that goes up by 10 % within an hour.
CREATE STREAM jumps AS
  SELECT stock, low, high FROM quotes MATCH_RECOGNIZE (
    PARTITION BY stock ORDER BY at
    MEASURES LOW.price AS low, HIGH.price AS high
    PATTERN (LOW MIDDLE*? HIGH) WITHIN 1 HOUR
    DEFINE HIGH AS HIGH.price >= LOW.price * 1.1
  );

-- Three failed logins, and then one that succeeds, within a minute.
CREATE STREAM guessed AS
  SELECT account, failures FROM logins MATCH_RECOGNIZE (
    PARTITION BY account ORDER BY at
    MEASURES COUNT(FAILED.*) AS failures
    PATTERN (FAILED{3,} SUCCEEDED) WITHIN 1 MINUTE
    DEFINE FAILED AS NOT ok, SUCCEEDED AS ok
  );
