package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	session = 2500 * time.Millisecond
	beat    = 300 * time.Millisecond
	batch   = 40
	whim    = 7
)

// copyAll copies a topic exactly once with a group transact session until SIGTERM; every seventh transaction is aborted on a whim.
func copyAll(bootstrap []string, group, input, output, name string) {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	client, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap...),
		kgo.TransactionalID(name),
		kgo.TransactionTimeout(5*time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(input),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(beat),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	)
	check(err)
	defer client.Close()
	for count := 1; ctx.Err() == nil; count++ {
		fetches := client.PollRecords(ctx, batch)
		if ctx.Err() != nil || fetches.NumRecords() == 0 {
			continue
		}
		check(client.Begin())
		var failure kgo.FirstErrPromise
		fetches.EachRecord(func(record *kgo.Record) {
			copied := &kgo.Record{Topic: output, Partition: record.Partition, Key: record.Key, Value: bytes.ToUpper(record.Value)}
			client.Produce(context.Background(), copied, failure.Promise())
		})
		wanted := kgo.TransactionEndTry(failure.Err() == nil && count%whim != 0)
		if committed, err := client.End(context.Background(), wanted); err != nil {
			fail("the transaction could not be ended: %v", err)
		} else if !committed && wanted == kgo.TryCommit {
			fmt.Fprintln(os.Stderr, "trouble: aborted,", failure.Err())
		}
	}
}
