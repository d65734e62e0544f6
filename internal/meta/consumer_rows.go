package meta

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
)

// ConsumerMember is what a member of a consumer group (KIP-848) has beyond a classic one; group_members.consumer.
type ConsumerMember struct {
	RackID        *string
	Topics        []string // names subscribed to
	Regex         string   // "" none
	Assignor      string   // "" no wish
	Epoch         int32    // -2: a static member that will be back
	PreviousEpoch int32
	State         string // "stable", "unrevoked" or "unreleased"
	// Assigned is what the member may have, Revoking what it was told to give up, Target what it is to have in the end.
	Assigned, Revoking, Target []TopicPartitions
}

// TopicPartitions are partitions of one topic.
type TopicPartitions struct {
	TopicID    UUID
	Partitions []int32
}

// Clone shares nothing with c.
func (c *ConsumerMember) Clone() *ConsumerMember {
	if c == nil {
		return nil
	}
	n := *c
	if c.RackID != nil {
		rack := *c.RackID
		n.RackID = &rack
	}
	n.Topics = slices.Clone(c.Topics)
	for _, list := range []*[]TopicPartitions{&n.Assigned, &n.Revoking, &n.Target} {
		*list = slices.Clone(*list)
		for i := range *list {
			(*list)[i].Partitions = slices.Clone((*list)[i].Partitions)
		}
	}
	return &n
}

// consumerJSON is the form in Postgres; client text is escaped as everywhere.
type consumerJSON struct {
	Epoch         int32            `json:"epoch"`
	PreviousEpoch int32            `json:"previous_epoch"`
	State         string           `json:"state"`
	Topics        []string         `json:"topics"`
	Regex         string           `json:"regex"`
	Assignor      string           `json:"assignor"`
	RackID        *string          `json:"rack_id"`
	Assigned      []partitionsJSON `json:"assigned"`
	Revoking      []partitionsJSON `json:"revoking"`
	Target        []partitionsJSON `json:"target"`
}

type partitionsJSON struct {
	TopicID    string  `json:"topic_id"`
	Partitions []int32 `json:"partitions"`
}

func consumerText(c *ConsumerMember) *string {
	if c == nil {
		return nil
	}
	stored := consumerJSON{
		Epoch: c.Epoch, PreviousEpoch: c.PreviousEpoch, State: c.State, Topics: make([]string, len(c.Topics)),
		Regex: toText(c.Regex), Assignor: toText(c.Assignor), RackID: textOrNull(c.RackID, toText),
		Assigned: partitionsToJSON(c.Assigned), Revoking: partitionsToJSON(c.Revoking), Target: partitionsToJSON(c.Target),
	}
	for i, t := range c.Topics {
		stored.Topics[i] = toText(t)
	}
	b, err := json.Marshal(stored)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	text := string(b)
	return &text
}

func consumerFromText(text *string) (*ConsumerMember, error) {
	if text == nil {
		return nil, nil
	}
	var stored consumerJSON
	if err := json.Unmarshal([]byte(*text), &stored); err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	c := &ConsumerMember{
		Epoch: stored.Epoch, PreviousEpoch: stored.PreviousEpoch, State: stored.State, Topics: make([]string, len(stored.Topics)),
		Regex: fromText(stored.Regex), Assignor: fromText(stored.Assignor), RackID: textOrNull(stored.RackID, fromText),
	}
	for i, t := range stored.Topics {
		c.Topics[i] = fromText(t)
	}
	for _, l := range []struct {
		from []partitionsJSON
		into *[]TopicPartitions
	}{{stored.Assigned, &c.Assigned}, {stored.Revoking, &c.Revoking}, {stored.Target, &c.Target}} {
		*l.into = make([]TopicPartitions, len(l.from))
		for i, p := range l.from {
			var id pgtype.UUID
			if err := id.Scan(p.TopicID); err != nil {
				return nil, fmt.Errorf("consumer: topic id %q: %w", p.TopicID, err)
			}
			(*l.into)[i] = TopicPartitions{TopicID: id.Bytes, Partitions: p.Partitions}
		}
	}
	return c, nil
}

func partitionsToJSON(list []TopicPartitions) []partitionsJSON {
	stored := make([]partitionsJSON, len(list))
	for i, p := range list {
		stored[i] = partitionsJSON{TopicID: uuidText(p.TopicID), Partitions: p.Partitions}
	}
	return stored
}
