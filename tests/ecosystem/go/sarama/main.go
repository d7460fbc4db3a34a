// A produce and consume round trip with Sarama: main BOOTSTRAP VERSION CODEC
//
// VERSION is the Kafka release that Sarama is told to speak ("default" leaves its own choice): it picks
// its request versions from that, and does not ask the broker. Ends with 0 when every record came back.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

const records = 500

func check(err error, doing string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", doing, err)
		os.Exit(1)
	}
}

func main() {
	bootstrap, version, codec := []string{os.Args[1]}, os.Args[2], os.Args[3]
	config := sarama.NewConfig()
	if version != "default" {
		parsed, err := sarama.ParseKafkaVersion(version)
		check(err, "parse version")
		config.Version = parsed
	}
	check(config.Producer.Compression.UnmarshalText([]byte(codec)), "codec")
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Net.MaxOpenRequests = 1
	config.Consumer.Return.Errors = true

	admin, err := sarama.NewClusterAdmin(bootstrap, config)
	check(err, "admin")
	topic := "from-sarama"
	retention := "3600000"
	check(admin.CreateTopic(topic, &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"retention.ms": &retention},
	}, false), "create topic")
	entries, err := admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"},
	})
	check(err, "describe config")
	if len(entries) != 1 || entries[0].Value != retention {
		check(fmt.Errorf("%v", entries), "retention.ms")
	}

	producer, err := sarama.NewSyncProducer(bootstrap, config)
	check(err, "producer")
	messages := make([]*sarama.ProducerMessage, records)
	for i := range messages {
		messages[i] = &sarama.ProducerMessage{
			Topic: topic, Partition: int32(i % 2),
			Key: sarama.StringEncoder(fmt.Sprint("key ", i)), Value: sarama.StringEncoder(fmt.Sprint("value ", i)),
			Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: []byte(fmt.Sprint(i))}},
		}
	}
	check(producer.SendMessages(messages), "send")
	check(producer.Close(), "close producer")

	consumer, err := sarama.NewConsumer(bootstrap, config)
	check(err, "consumer")
	timeout := time.After(30 * time.Second)
	for partition := int32(0); partition < 2; partition++ {
		stream, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		check(err, "consume")
		for i := 0; i < records/2; i++ {
			select {
			case message := <-stream.Messages():
				n := 2*i + int(partition)
				want := fmt.Sprint("value ", n)
				if string(message.Value) != want || message.Offset != int64(i) ||
					string(message.Key) != fmt.Sprint("key ", n) ||
					len(message.Headers) != 1 || string(message.Headers[0].Value) != fmt.Sprint(n) {
					check(fmt.Errorf("offset %d: %q", message.Offset, message.Value), "want "+want)
				}
			case failure := <-stream.Errors():
				check(failure, "consume")
			case <-timeout:
				check(fmt.Errorf("%d of %d records", i, records/2), "timeout")
			}
		}
		check(stream.Close(), "close partition")
	}
	check(consumer.Close(), "close consumer")
	check(admin.DeleteRecords(topic, map[int32]int64{0: 10}), "delete records")
	check(admin.DeleteTopic(topic), "delete topic")
	check(admin.Close(), "close admin")
}
