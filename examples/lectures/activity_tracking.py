"""Activity tracking: what users do on a site, one topic for each kind of activity, keyed by user.

One group subscribes to all of them by a pattern; others (search, recommendations) would read the same
records. Prints what each user did, and the most viewed page.
"""

import json
from collections import Counter, defaultdict

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer

ACTIVITY = [
    ("views", "ann", "/home"),
    ("searches", "ann", "tea"),
    ("views", "bob", "/tea"),
    ("views", "ann", "/tea"),
    ("purchases", "ann", "tea"),
]
servers = bootstrap(__doc__)
for kind in ("views", "searches", "purchases"):
    new_topic(servers, f"activity.{kind}", partitions=2)

producer = KafkaProducer(bootstrap_servers=servers, value_serializer=lambda value: json.dumps(value).encode())
for kind, user, what in ACTIVITY:
    producer.send(f"activity.{kind}", key=user.encode(), value=what)
producer.close()  # waits for what is under way

consumer = KafkaConsumer(bootstrap_servers=servers, group_id="reports", auto_offset_reset="earliest")
consumer.subscribe(pattern=r"^activity\..*")
done: dict[str, Counter[str]] = defaultdict(Counter)
pages: Counter[str] = Counter()
while sum(counts.total() for counts in done.values()) < len(ACTIVITY):
    for records in consumer.poll(timeout_ms=500).values():
        for record in records:
            kind = record.topic.removeprefix("activity.")
            done[record.key.decode()][kind] += 1
            if kind == "views":
                pages[json.loads(record.value)] += 1
for user in sorted(done):
    print(user, dict(sorted(done[user].items())))
print("most viewed:", pages.most_common(1)[0])
consumer.close()
