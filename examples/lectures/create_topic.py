"""Create a topic with kafka-python: NewTopic has a name, a number of partitions and of replicas.

Prints the topics of the cluster, and the partitions of the new one with their leaders.
"""

from classroom import bootstrap
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError

admin = KafkaAdminClient(bootstrap_servers=bootstrap(__doc__), client_id="lecture")
try:
    admin.create_topics([NewTopic(name="customers", num_partitions=3, replication_factor=1)])
    print("created customers")
except TopicAlreadyExistsError:
    print("customers exists already")

print("customers" in admin.list_topics())
for partition in admin.describe_topics(["customers"])[0]["partitions"]:
    print(partition["partition_index"], "replicas", partition["replica_nodes"])
admin.close()
