package broker

import (
	"bytes"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/seededbug"
	"github.com/pgbroker/pgbroker/internal/segstore"
)

// appendLate is seededbug.AckBeforeAppend: the answer is what the append would say, which comes later.
func appendLate(lead *leadership, b segstore.Batch, out *kmsg.ProduceResponseTopicPartition) error {
	out.BaseOffset = lead.log.Offsets().End
	late, err := segstore.ParseBatch(bytes.Clone(b.Raw))
	time.AfterFunc(seededbug.Late, func() { _, _ = lead.log.AppendLeader(late, lead.row.Term) })
	return err
}
