-- Word count, as Kafka Streams' first example has it: lines of text in, a count of each word out.
--
--     penstock sql -f examples/sql/word_count.sql
--     penstock produce streams-plaintext-input            (and type lines)
--     penstock sql -e "SELECT * FROM word_counts WHERE word = 'kafka'"
--     penstock sql -e "SELECT * FROM word_counts EMIT CHANGES"

CREATE STREAM lines (line STRING) WITH (topic = 'streams-plaintext-input', format = 'string', partitions = 2);

CREATE TABLE word_counts WITH (topic = 'streams-wordcount-output') AS
  SELECT word, COUNT(*) AS occurrences
  FROM (SELECT EXPLODE(SPLIT(LOWER(line), '\\W+')) AS word FROM lines)
  WHERE word <> ''
  GROUP BY word;
