"""The poll loop: count the customers of each country, as lectures show it in Java with custCountryMap.

Prints the map as JSON after each record. With automatic commits, poll() commits what the last poll returned.
"""

import json

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer

servers = bootstrap(__doc__)
topic = new_topic(servers, "customerCountries")

producer = KafkaProducer(bootstrap_servers=servers)
for customer, country in [("ann", "Norway"), ("bob", "Italy"), ("cas", "Norway"), ("dee", "France")]:
    producer.send(topic, key=customer.encode(), value=country.encode())
producer.close()  # waits for what is under way

consumer = KafkaConsumer(bootstrap_servers=servers, group_id="CountryCounter", auto_offset_reset="earliest")
consumer.subscribe([topic])
cust_country_map: dict[str, int] = {}
try:
    while sum(cust_country_map.values()) < 4:  # a service would say: while True
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                country = record.value.decode()
                cust_country_map[country] = cust_country_map.get(country, 0) + 1
                print(json.dumps(cust_country_map))
finally:
    consumer.close()
