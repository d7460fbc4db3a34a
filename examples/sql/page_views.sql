-- Page views by region, as ksqlDB's quick start and Kafka Streams' examples have them: views are joined with the
-- users who made them, and counted for each region and minute.
--
--     penstock sql -f examples/sql/page_views.sql
--     penstock sql -e "INSERT INTO users VALUES ('alice', 'Europe', 'FEMALE')"
--     penstock sql -e "INSERT INTO pageviews VALUES ('alice', '/docs', 1735689600000)"
--     penstock sql -e "SELECT * FROM views_by_region WHERE region = 'Europe'"

CREATE STREAM pageviews (user_id STRING KEY, page STRING, viewed_at BIGINT)
  WITH (topic = 'pageviews', format = 'json', timestamp = 'viewed_at', partitions = 2);

CREATE TABLE users (user_id STRING PRIMARY KEY, region STRING, gender STRING)
  WITH (topic = 'users', format = 'json', partitions = 2);

-- Each view with what is known of its user.
CREATE STREAM pageviews_enriched WITH (timestamp = 'viewed_at') AS
  SELECT v.user_id, v.page, v.viewed_at, u.region, u.gender
  FROM pageviews v LEFT JOIN users u ON v.user_id = u.user_id;

-- The views of women, in a topic of their own.
CREATE STREAM pageviews_female AS
  SELECT user_id, page, region FROM pageviews_enriched WHERE gender = 'FEMALE';

-- The pages that are seen in regions whose name ends in 8 or 9, as in ksqlDB's.
CREATE STREAM pageviews_female_like_89 WITH (topic = 'pageviews_enriched_r8_r9') AS
  SELECT * FROM pageviews_female WHERE region LIKE '%8' OR region LIKE '%9';

-- How many in each region and minute; of each user how many pages in a session.
CREATE TABLE views_by_region AS
  SELECT region, COUNT(*) AS views
  FROM pageviews_enriched WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 1 DAY)
  GROUP BY region;

CREATE TABLE sessions_by_user AS
  SELECT user_id, COUNT(*) AS views
  FROM pageviews WINDOW SESSION (30 MINUTES, GRACE PERIOD 1 DAY)
  GROUP BY user_id;
