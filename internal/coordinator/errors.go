package coordinator

import "errors"

// Every error that a reply can carry, with Kafka's code for it. Wrapped errors do not occur.
var (
	ErrNotCoordinator       = errors.New("this broker does not coordinate the group")                      // 16
	ErrNotAvailable         = errors.New("the coordinator cannot do that now")                             // 15
	ErrInvalidGroupID       = errors.New("the group id is invalid")                                        // 24
	ErrUnknownMember        = errors.New("the coordinator does not know this member")                      // 25
	ErrInvalidSession       = errors.New("the session timeout is outside of what the broker allows")       // 26
	ErrRebalancing          = errors.New("the group is rebalancing, so a rejoin is needed")                // 27
	ErrIllegalGeneration    = errors.New("the generation is not the current one")                          // 22
	ErrInconsistentProtocol = errors.New("the group's type and protocols do not go with the member's")     // 23
	ErrMemberIDRequired     = errors.New("the member must join again with the id it was given")            // 79
	ErrFencedInstance       = errors.New("another member has taken this group instance id")                // 82
	ErrGroupFull            = errors.New("the group has reached its maximum size")                         // 81
	ErrNonEmptyGroup        = errors.New("the group is not empty")                                         // 68
	ErrGroupNotFound        = errors.New("the group does not exist")                                       // 69
	ErrSubscribed           = errors.New("the group is subscribed to the topic")                           // 86
	ErrMetadataTooLarge     = errors.New("the offset's metadata is larger than offset.metadata.max.bytes") // 12
)
