package broker

// AlterReplicaLogDirs (key 34, KIP-113), versions 1 and 2. v2 flexible.
// Left out: moves. There is one log directory: asking for it succeeds, for another is LOG_DIR_NOT_FOUND.

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

var errNoLogDir = errors.New("no such log directory")

func (b *Broker) handleAlterReplicaLogDirs(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.AlterReplicaLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.AlterReplicaLogDirsResponse)
	cat := b.catalog.Load()
	at := map[string]int{} // of a topic's row: one for each, although a topic may be named below several directories
	for _, dir := range req.Dirs {
		for _, asked := range dir.Topics {
			i, again := at[asked.Topic]
			if !again {
				i = len(resp.Topics)
				at[asked.Topic] = i
				row := kmsg.NewAlterReplicaLogDirsResponseTopic()
				row.Topic = asked.Topic
				resp.Topics = append(resp.Topics, row)
			}
			for _, p := range asked.Partitions {
				result := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				result.Partition, result.ErrorCode = p, codeOf(b.moveLog(cat, dir.Dir, asked.Topic, p))
				resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, result)
			}
		}
	}
	done(wire.Response{Msg: resp}, nil)
}

func (b *Broker) moveLog(cat *catalog, dir, topic string, partition int32) error {
	if dir != b.dir {
		return fmt.Errorf("%w: %s", errNoLogDir, dir)
	}
	if t, ok := cat.topicByName(topic); ok {
		if _, ok := t.partition(partition); ok {
			return nil
		}
	}
	return errUnknownTopic
}
