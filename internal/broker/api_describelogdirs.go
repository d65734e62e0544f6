package broker

// DescribeLogDirs (key 35), versions 1 to 5. v2 flexible · v3 top-level error · v4 total and usable bytes (KIP-827) ·
// v5 cordoned directories (KIP-1066), never set here.
// Left out: nothing. There is one directory and no copy is moved between directories (is_future_key is false).

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/segstore"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleDescribeLogDirs(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = b.dir
	total, free, err := b.segments.Usage()
	if err != nil {
		b.log.Error("the space of the log directory could not be read", "err", err)
		dir.ErrorCode = codeOf(segstore.ErrStorage)
	} else {
		dir.TotalBytes, dir.UsableBytes = total, free
	}
	dir.Topics = describeLogs(b.segments.Logs(), logFilter(req.Topics))
	resp.Dirs = append(resp.Dirs, dir)
	done(wire.Response{Msg: resp}, nil)
}

// logFilter says which partitions are asked for; null topics are all, and a topic without partitions is none.
func logFilter(asked []kmsg.DescribeLogDirsRequestTopic) func(topic string, partition int32) bool {
	if asked == nil {
		return func(string, int32) bool { return true }
	}
	type key struct {
		topic     string
		partition int32
	}
	wanted := map[key]bool{}
	for _, t := range asked {
		for _, p := range t.Partitions {
			wanted[key{t.Topic, p}] = true
		}
	}
	return func(topic string, partition int32) bool { return wanted[key{topic, partition}] }
}

// describeLogs lists sizes by topic, in order.
func describeLogs(logs []*segstore.Log, wanted func(string, int32) bool) []kmsg.DescribeLogDirsResponseDirTopic {
	logs = slices.DeleteFunc(slices.Clone(logs), func(l *segstore.Log) bool { return !wanted(l.Topic(), l.Partition()) })
	slices.SortFunc(logs, func(a, b *segstore.Log) int {
		return cmp.Or(cmp.Compare(a.Topic(), b.Topic()), cmp.Compare(a.Partition(), b.Partition()))
	})
	var topics []kmsg.DescribeLogDirsResponseDirTopic
	for _, log := range logs {
		if n := len(topics); n == 0 || topics[n-1].Topic != log.Topic() {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = log.Topic()
			topics = append(topics, t)
		}
		row := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		row.Partition, row.Size = log.Partition(), log.Size()
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, row)
	}
	return topics
}
