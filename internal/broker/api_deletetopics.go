package broker

// DeleteTopics (key 20), versions 1 to 6. v3 TOPIC_DELETION_DISABLED · v4 flexible · v5 error message,
// THROTTLING_QUOTA_EXCEEDED (KIP-599) · v6 topics by id (KIP-516).
// Left out: nothing. Topics are gone for clients when they are answered; their files follow after file.delete.delay.ms.

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

// deletion is one topic that a request wants gone.
type deletion struct {
	name *string
	id   meta.UUID
	err  error
}

func (b *Broker) handleDeleteTopics(ctx context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	ctx, cancel := changeContext(ctx, req.TimeoutMillis)
	defer cancel()
	quota := b.mutationQuotaOf(r, 5)
	asked := refuseNamedAgain(b.catalog.Load(), deletions(req))
	if b.cfg.Bool("delete.topic.enable") {
		b.deleteTopics(ctx, asked, quota)
	} else {
		refuseDeletions(asked, req.Version)
	}
	for _, d := range asked {
		row := kmsg.NewDeleteTopicsResponseTopic()
		row.Topic, row.TopicID, row.ErrorCode, row.ErrorMessage = d.name, d.id, codeOf(d.err), messageOf(d.err)
		if row.Topic == nil && req.Version < 6 {
			row.Topic = new(string)
		}
		b.noteUnmapped("DeleteTopics", d.err)
		resp.Topics = append(resp.Topics, row)
	}
	done(wire.Response{Msg: resp, Throttle: quota.throttled()}, nil)
}

func refuseDeletions(asked []deletion, version int16) {
	for i := range asked {
		asked[i].err = errDeletionDisabled
		if version < 3 {
			asked[i].err = fmt.Errorf("%w: %w", errInvalidRequest, errDeletionDisabled)
		}
	}
}

// deletions are the topics of a request; a name or id that comes twice is one row in error.
func deletions(req *kmsg.DeleteTopicsRequest) []deletion {
	var asked []deletion
	type key struct {
		name string
		id   meta.UUID
	}
	at := map[key]int{}
	add := func(name *string, id meta.UUID) {
		k := key{id: id}
		if name != nil {
			k.name = *name
		}
		if n, twice := at[k]; twice {
			asked[n].err = fmt.Errorf("%w: the topic is named more than once", errInvalidRequest)
			return
		}
		d := deletion{name: name, id: id}
		switch {
		case name == nil && id == meta.UUID{}:
			d.err = fmt.Errorf("%w: neither a name nor an id is given", errInvalidRequest)
		case name != nil && id != meta.UUID{}:
			d.err = fmt.Errorf("%w: both a name and an id are given", errInvalidRequest)
		}
		at[k] = len(asked)
		asked = append(asked, d)
	}
	for i := range req.TopicNames {
		add(&req.TopicNames[i], meta.UUID{})
	}
	for _, t := range req.Topics {
		add(t.Topic, t.TopicID)
	}
	return asked
}

// deleteTopics deletes what can be deleted, in one commit, and fills in names, ids and errors.
func (b *Broker) deleteTopics(ctx context.Context, asked []deletion, quota *mutationQuota) {
	end, err := b.beginChange(ctx)
	if err != nil {
		for i := range asked {
			asked[i].err = err
		}
		return
	}
	defer end()
	ids, places := resolveDeletions(b.catalog.Load(), asked, quota)
	if len(ids) == 0 {
		return
	}
	var outcome []error
	tried := false // an attempt with unknown outcome may have deleted what the next one does not find
	err = retryChange(ctx, func(attempt int) error {
		tried = attempt > 1
		c, each, err := b.store.DeleteTopics(ctx, b.owner, ids)
		if err != nil {
			return err
		}
		outcome = each
		return b.serve(c)
	})
	for n, i := range places {
		switch {
		case err != nil:
			asked[i].err = fmt.Errorf("delete topic: %w", err)
		case outcome[n] != nil && !(tried && errors.Is(outcome[n], meta.ErrUnknownTopic)):
			asked[i].err = fmt.Errorf("delete topic: %w", outcome[n])
		}
	}
}

// resolveDeletions finds the topics, by name or by id, and returns the ids to delete with their places in asked.
func resolveDeletions(cat *catalog, asked []deletion, quota *mutationQuota) (ids []meta.UUID, places []int) {
	for i := range asked {
		d := &asked[i]
		if d.err != nil {
			continue
		}
		t, err := findTopic(cat, d.name == nil, nameOf(d.name), d.id)
		if err != nil {
			d.err = err
			continue
		}
		d.name, d.id = &t.name, t.id
		if d.err = quota.take(len(t.partitions)); d.err != nil {
			continue
		}
		ids, places = append(ids, t.id), append(places, i)
	}
	return ids, places
}

// refuseNamedAgain makes one row in error of a topic that a request gives both by name and by id (Kafka's ControllerApis).
func refuseNamedAgain(cat *catalog, asked []deletion) []deletion {
	byID := map[meta.UUID]int{}
	for i, d := range asked {
		if d.name == nil {
			byID[d.id] = i
		}
	}
	again := map[int]bool{}
	for i := range asked {
		d := &asked[i]
		if d.name == nil || d.err != nil {
			continue
		}
		t, ok := cat.topicByName(*d.name)
		if !ok {
			continue
		}
		first, given := byID[t.id]
		if !given {
			continue
		}
		d.id, d.err = t.id, fmt.Errorf("%w: the topic is given by name and by id", errInvalidRequest)
		again[first] = asked[first].err == nil // an id that comes twice keeps its row
	}
	kept := asked[:0]
	for i, d := range asked {
		if !again[i] {
			kept = append(kept, d)
		}
	}
	return kept
}

func nameOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
