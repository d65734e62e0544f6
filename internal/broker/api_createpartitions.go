package broker

// CreatePartitions (key 37), versions 0 to 3. v2 flexible · v3 THROTTLING_QUOTA_EXCEEDED (KIP-599).
// Left out: nothing.

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleCreatePartitions(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.CreatePartitionsRequest)
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	ctx, cancel := changeContext(ctx, req.TimeoutMillis)
	defer cancel()
	named := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		named[req.Topics[i].Topic]++
	}
	left := maxPartitionsPerRequest
	quota := b.mutationQuotaOf(r, 3)
	for i := range req.Topics {
		t := &req.Topics[i]
		times := named[t.Topic]
		if times == 0 {
			continue
		}
		named[t.Topic] = 0 // one row for each name
		var err error
		if times > 1 {
			err = fmt.Errorf("%w: topic %s is named more than once", errInvalidRequest, t.Topic)
		} else {
			err = b.createPartitions(ctx, t, req.ValidateOnly, &left, quota)
		}
		b.noteUnmapped("CreatePartitions", err)
		row := kmsg.NewCreatePartitionsResponseTopic()
		row.Topic, row.ErrorCode, row.ErrorMessage = t.Topic, codeOf(err), messageOf(err)
		resp.Topics = append(resp.Topics, row)
	}
	done(wire.Response{Msg: resp, Throttle: quota.throttled()}, nil)
}

// createPartitions raises one topic's partition count; left is how many partitions the request may still create.
func (b *Broker) createPartitions(ctx context.Context, asked *kmsg.CreatePartitionsRequestTopic, validateOnly bool, left *int, quota *mutationQuota) error {
	end, err := b.beginChange(ctx)
	if err != nil {
		return err
	}
	defer end()
	cat := b.catalog.Load()
	t, ok := cat.topicByName(asked.Topic)
	if !ok {
		return fmt.Errorf("%w: %s", errUnknownTopic, asked.Topic)
	}
	replicas, err := planPartitions(cat, t, asked, *left)
	if err == nil {
		err = quota.take(len(replicas))
	}
	if err != nil || validateOnly {
		return err
	}
	*left -= len(replicas)
	known := len(t.partitions)
	err = retryChange(ctx, func(attempt int) error {
		c, err := b.store.AddPartitions(ctx, b.owner, t.id, known, replicas)
		if errors.Is(err, meta.ErrStale) && attempt > 1 {
			return b.checkPartitionCount(ctx, t.id, known+len(replicas), err)
		}
		if err != nil {
			return err
		}
		return b.serve(c)
	})
	if err != nil {
		return fmt.Errorf("add partitions to topic %s: %w", t.name, err)
	}
	return nil
}

// checkPartitionCount tells an own earlier attempt, whose outcome was unknown, from another's change.
func (b *Broker) checkPartitionCount(ctx context.Context, id meta.UUID, want int, stale error) error {
	if err := b.reload(ctx); err != nil {
		return err
	}
	if t, ok := b.catalog.Load().topicByID(id); ok && len(t.partitions) == want {
		return nil
	}
	return stale
}

// planPartitions checks the request against the topic and places the new partitions.
func planPartitions(cat *catalog, t *topic, asked *kmsg.CreatePartitionsRequestTopic, left int) ([][]int32, error) {
	have, want := len(t.partitions), int(asked.Count)
	added := want - have
	switch {
	case added == 0:
		return nil, fmt.Errorf("%w: topic %s has %d already", errInvalidPartitions, t.name, have)
	case added < 0:
		return nil, fmt.Errorf("%w: topic %s has %d, which cannot be lowered to %d", errInvalidPartitions, t.name, have, want)
	case added > left:
		return nil, errTooManyPartitions
	}
	live, factor := liveBrokers(cat), max(len(t.partitions[0].lead.Load().row.Replicas), 1)
	if asked.Assignment == nil {
		if factor > len(live) {
			return nil, fmt.Errorf("%w: %d, there are %d live brokers", errInvalidReplication, factor, len(live))
		}
		return placeReplicas(live, have, added, factor), nil
	}
	if len(asked.Assignment) != added {
		return nil, fmt.Errorf("%w: %d partitions are added and %d assigned", errInvalidAssignment, added, len(asked.Assignment))
	}
	replicas := make([][]int32, 0, added)
	for _, a := range asked.Assignment {
		replicas = append(replicas, a.Replicas)
	}
	return replicas, checkAssignment(live, replicas, factor)
}
