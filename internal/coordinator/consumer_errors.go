package coordinator

import "errors"

// Errors of the consumer protocol, with Kafka's code for each.
var (
	ErrInvalidRequest      = errors.New("the request is invalid")                                                                                      // 42
	ErrFencedEpoch         = errors.New("the member's epoch is not the coordinator's, so it must give up its partitions and join again")               // 110
	ErrUnreleasedInstance  = errors.New("another member that has not left has this group instance id")                                                 // 111
	ErrUnsupportedAssignor = errors.New("the broker does not have the assignor")                                                                       // 112
	ErrStaleEpoch          = errors.New("the member's epoch is not the coordinator's, so it must ask again with the one that its next heartbeat says") // 113
	ErrInvalidRegex        = errors.New("the regular expression is invalid")                                                                           // 128
	ErrVersionOfCommit     = errors.New("members of consumer groups commit offsets with version 9 or later of OffsetCommit")                           // 35
)
