// A produce and consume round trip with franz-go: main BOOTSTRAP IDEMPOTENT CODEC
//
// Ends with 0 when every record came back, in order, with its key and header.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const records = 500

func check(err error, doing string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", doing, err)
		os.Exit(1)
	}
}

func main() {
	bootstrap, idempotent, codec := os.Args[1], os.Args[2] == "true", os.Args[3]
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic("from-franz"), kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(codecs[codec]), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if !idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	}
	producer, err := kgo.NewClient(options...)
	check(err, "producer")
	batch := make([]*kgo.Record, records)
	for i := range batch {
		batch[i] = &kgo.Record{
			Key: []byte(fmt.Sprint("key ", i)), Value: []byte(fmt.Sprint("value ", i)),
			Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(fmt.Sprint(i))}},
		}
	}
	check(producer.ProduceSync(ctx, batch...).FirstErr(), "produce")
	producer.Close()

	consumer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics("from-franz"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err, "consumer")
	for n := 0; n < records; {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err(), "fetch")
		fetches.EachRecord(func(record *kgo.Record) {
			if string(record.Value) != fmt.Sprint("value ", n) || record.Offset != int64(n) ||
				string(record.Key) != fmt.Sprint("key ", n) || len(record.Headers) != 1 {
				check(fmt.Errorf("offset %d: %q", record.Offset, record.Value), fmt.Sprint("want value ", n))
			}
			n++
		})
	}
	consumer.Close()
}
