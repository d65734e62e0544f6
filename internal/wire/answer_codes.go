package wire

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// codesKept is how many error codes are told apart, from UNKNOWN_SERVER_ERROR (-1) on: all of Kafka 4.4 have room.
const codesKept = 160

// codeCounts are the error codes that answers of one request name have carried.
type codeCounts [codesKept]atomic.Uint64

func (c *codeCounts) add(code int16, n uint64) {
	if i := int(code) + 1; n > 0 && i >= 0 && i < len(c) {
		c[i].Add(n)
	}
}

func (c *codeCounts) collect(out chan<- prometheus.Metric, request string) {
	for i := range c {
		if n := c[i].Load(); n > 0 {
			out <- constant(errorsDesc, prometheus.CounterValue, float64(n), request, codeName(int16(i-1)))
		}
	}
}

// codeName is Kafka's name of a code.
func codeName(code int16) string {
	if code == 0 {
		return "NONE"
	}
	known := kerr.TypedErrorForCode(code)
	if known == nil || known.Code != code {
		return strconv.Itoa(int(code))
	}
	return known.Message
}

// countAnswer counts the codes of an answer before it is encoded: the one of the whole, where the answer has one, and for
// Produce and commits of offsets the one of each partition. Rows of other answers, and Fetch, which comes here encoded, are
// not counted.
func (c *codeCounts) countAnswer(msg kmsg.Response) {
	switch r := msg.(type) {
	case *kmsg.ProduceResponse:
		var run codeRun
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				run.add(c, r.Topics[i].Partitions[j].ErrorCode)
			}
		}
		run.end(c)
	case *kmsg.OffsetCommitResponse:
		var run codeRun
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				run.add(c, r.Topics[i].Partitions[j].ErrorCode)
			}
		}
		run.end(c)
	case *kmsg.TxnOffsetCommitResponse:
		var run codeRun
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				run.add(c, r.Topics[i].Partitions[j].ErrorCode)
			}
		}
		run.end(c)
	default:
		if code, ok := wholeCode(msg); ok {
			c.add(code, 1)
		}
	}
}

// codeRun adds the same code many times at once.
type codeRun struct {
	code int16
	n    uint64
}

func (r *codeRun) add(c *codeCounts, code int16) {
	if code != r.code {
		r.end(c)
		r.code = code
	}
	r.n++
}

func (r *codeRun) end(c *codeCounts) {
	c.add(r.code, r.n)
	r.n = 0
}

// wholeCode is the code that stands for a whole answer; ok is false where there is none.
func wholeCode(msg kmsg.Response) (code int16, ok bool) {
	switch r := msg.(type) {
	case *kmsg.MetadataResponse:
		return r.ErrorCode, true
	case *kmsg.OffsetFetchResponse:
		return r.ErrorCode, true
	case *kmsg.FindCoordinatorResponse:
		return r.ErrorCode, true
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode, true
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode, true
	case *kmsg.LeaveGroupResponse:
		return r.ErrorCode, true
	case *kmsg.SyncGroupResponse:
		return r.ErrorCode, true
	case *kmsg.ListGroupsResponse:
		return r.ErrorCode, true
	case *kmsg.SASLHandshakeResponse:
		return r.ErrorCode, true
	case *kmsg.ApiVersionsResponse:
		return r.ErrorCode, true
	case *kmsg.InitProducerIDResponse:
		return r.ErrorCode, true
	case *kmsg.AddPartitionsToTxnResponse:
		return r.ErrorCode, true
	case *kmsg.AddOffsetsToTxnResponse:
		return r.ErrorCode, true
	case *kmsg.EndTxnResponse:
		return r.ErrorCode, true
	case *kmsg.DescribeACLsResponse:
		return r.ErrorCode, true
	case *kmsg.DescribeLogDirsResponse:
		return r.ErrorCode, true
	case *kmsg.SASLAuthenticateResponse:
		return r.ErrorCode, true
	case *kmsg.CreateDelegationTokenResponse:
		return r.ErrorCode, true
	case *kmsg.RenewDelegationTokenResponse:
		return r.ErrorCode, true
	case *kmsg.ExpireDelegationTokenResponse:
		return r.ErrorCode, true
	case *kmsg.DescribeDelegationTokenResponse:
		return r.ErrorCode, true
	case *kmsg.ElectLeadersResponse:
		return r.ErrorCode, true
	case *kmsg.AlterPartitionAssignmentsResponse:
		return r.ErrorCode, true
	case *kmsg.ListPartitionReassignmentsResponse:
		return r.ErrorCode, true
	case *kmsg.OffsetDeleteResponse:
		return r.ErrorCode, true
	case *kmsg.DescribeClientQuotasResponse:
		return r.ErrorCode, true
	case *kmsg.DescribeUserSCRAMCredentialsResponse:
		return r.ErrorCode, true
	case *kmsg.DescribeQuorumResponse:
		return r.ErrorCode, true
	case *kmsg.UpdateFeaturesResponse:
		return r.ErrorCode, true
	case *kmsg.DescribeClusterResponse:
		return r.ErrorCode, true
	case *kmsg.UnregisterControllerResponse:
		return r.ErrorCode, true
	case *kmsg.UnregisterBrokerResponse:
		return r.ErrorCode, true
	case *kmsg.ListTransactionsResponse:
		return r.ErrorCode, true
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return r.ErrorCode, true
	case *kmsg.ListConfigResourcesResponse:
		return r.ErrorCode, true
	case *kmsg.AddRaftVoterResponse:
		return r.ErrorCode, true
	case *kmsg.RemoveRaftVoterResponse:
		return r.ErrorCode, true
	}
	return 0, false
}
