package broker

import (
	"fmt"
	"strings"
)

// maxTopicName is Kafka's limit, so that "<topic>-<partition>" and what a deletion appends fit a file name.
const maxTopicName = 249

// Topics that a Kafka broker keeps for itself. They cannot be created here: groups and transactions live in Postgres.
const (
	offsetsTopic      = "__consumer_offsets"
	transactionsTopic = "__transaction_state"
)

// isInternalTopic says whether Kafka would keep the topic for itself.
func isInternalTopic(name string) bool { return name == offsetsTopic || name == transactionsTopic }

// validTopicName applies the rules of Kafka's Topic.validate: 1 to 249 of [a-zA-Z0-9._-], and neither "." nor "..".
// The error wraps errInvalidTopic.
func validTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty", errInvalidTopic)
	case name == "." || name == "..":
		return fmt.Errorf("%w: the name cannot be %q", errInvalidTopic, name)
	case len(name) > maxTopicName:
		return fmt.Errorf("%w: the name is %d characters long, %d are allowed", errInvalidTopic, len(name), maxTopicName)
	}
	for i := range len(name) {
		if !legalTopicByte(name[i]) {
			return fmt.Errorf("%w: %q contains a character other than letters, digits, '.', '_' and '-'", errInvalidTopic, name)
		}
	}
	return nil
}

func legalTopicByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// collisionKey is equal for names that Kafka's metrics cannot tell apart (Topic.unifyCollisionChars).
func collisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }

// collides says whether two names differ in nothing but '.' against '_' (Topic.hasCollision). Equal names collide.
func collides(a, b string) bool { return collisionKey(a) == collisionKey(b) }
