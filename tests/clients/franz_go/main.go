// Command interop lets franz-go write records idempotently and read them back by partition; a Python test drives it.
//
//	interop write BOOTSTRAP TOPIC PARTITIONS PRODUCERS RECORDS   each producer writes RECORDS records, at most 2000 a second
//	interop write-keyed ...                                      the same, with keys "producer.record" that are each record's own
//	interop read BOOTSTRAP TOPIC PARTITIONS RECORDS              prints "partition offset key value" of so many records, and of any that are too many
//	interop copy BOOTSTRAP GROUP INPUT OUTPUT TRANSACTIONAL_ID   copies exactly once until SIGTERM
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	limit      = 60 * time.Second
	tooMany    = 500 * time.Millisecond
	pauseEvery = 20
	pause      = 10 * time.Millisecond
)

func main() {
	if os.Args[1] == "copy" {
		copyAll(strings.Split(os.Args[2], ","), os.Args[3], os.Args[4], os.Args[5], os.Args[6])
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	bootstrap, topic, partitions := strings.Split(os.Args[2], ","), os.Args[3], number(4)
	switch os.Args[1] {
	case "write":
		write(ctx, bootstrap, topic, partitions, number(5), number(6), false)
	case "write-keyed":
		write(ctx, bootstrap, topic, partitions, number(5), number(6), true)
	case "read":
		read(ctx, bootstrap, topic, partitions, number(5))
	default:
		fail("unknown verb %s", os.Args[1])
	}
}

func write(ctx context.Context, bootstrap []string, topic string, partitions, producers, records int, keyed bool) {
	var writers sync.WaitGroup
	for name := 0; name < producers; name++ {
		writers.Add(1)
		go func(name int) {
			defer writers.Done()
			client, err := kgo.NewClient(
				kgo.SeedBrokers(bootstrap...),
				kgo.RecordPartitioner(kgo.ManualPartitioner()),
				kgo.ProducerBatchCompression(compressions[name%len(compressions)]),
				kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
			)
			check(err)
			defer client.Close()
			for count := 0; count < records; count++ {
				record := &kgo.Record{
					Topic:     topic,
					Partition: int32(count % partitions),
					Key:       []byte(strconv.Itoa(name)),
					Value:     []byte(strconv.Itoa(count)),
				}
				if keyed {
					record.Key = fmt.Appendf(nil, "%d.%d", name, count)
				}
				client.Produce(ctx, record, func(_ *kgo.Record, err error) { check(err) })
				if count%pauseEvery == 0 {
					time.Sleep(pause)
				}
			}
			check(client.Flush(ctx))
		}(name)
	}
	writers.Wait()
	fmt.Println("written", producers*records)
}

var compressions = []kgo.CompressionCodec{
	kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
}

func read(ctx context.Context, bootstrap []string, topic string, partitions, records int) {
	places := map[int32]kgo.Offset{}
	for partition := 0; partition < partitions; partition++ {
		places[int32(partition)] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: places}))
	check(err)
	defer client.Close()
	for seen := 0; seen < records; {
		seen += show(client.PollFetches(ctx))
		check(ctx.Err())
	}
	soon, cancel := context.WithTimeout(ctx, tooMany)
	defer cancel()
	for soon.Err() == nil {
		show(client.PollFetches(soon))
	}
}

func show(fetches kgo.Fetches) int {
	count := 0
	fetches.EachRecord(func(record *kgo.Record) {
		count++
		fmt.Println(record.Partition, record.Offset, string(record.Key), string(record.Value))
	})
	return count
}

func number(index int) int {
	value, err := strconv.Atoi(os.Args[index])
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(format string, words ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", words...)
	os.Exit(1)
}
