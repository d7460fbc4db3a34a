"""Word count: the first program of every lecture on streams, here in Spark on a topic.

Reads what the topic has, counts each word, and prints the counts. Without `trigger(availableNow=True)` it
would go on counting for as long as lines come.
"""

from classroom import bootstrap, new_topic
from kafka import KafkaProducer
from pyspark.sql import functions as F

from penstock.spark import session

servers = bootstrap(__doc__)
topic = new_topic(servers, "sentences", partitions=2)

producer = KafkaProducer(bootstrap_servers=servers)
for line in ("the log is the truth", "a table is a view of the log"):
    producer.send(topic, value=line.encode())
producer.close()

spark = session("word count")
lines = (
    spark.readStream.format("penstock")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .load()
)
words = lines.select(F.explode(F.split(F.col("value").cast("string"), " ")).alias("word"))
query = (
    words.groupBy("word")
    .count()
    .writeStream.format("memory")
    .queryName("word_counts")
    .outputMode("complete")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
for row in spark.table("word_counts").orderBy(F.desc("count"), "word").collect():
    print(row["word"], row["count"])
