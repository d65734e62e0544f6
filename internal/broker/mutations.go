package broker

import (
	"errors"
	"fmt"
	"time"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// controllerMutationRate limits how many partitions a second a client creates and deletes (KIP-599). A client may go into
// debt with one change; then it makes none until the debt is paid back. From the versions on that know the error, a change in
// debt is refused; older ones are executed, and their clients muted (Kafka's ControllerMutationQuotaManager).
const controllerMutationRate = "controller_mutation_rate"

var errMutationQuota = errors.New("the quota on created and deleted partitions is exceeded")

// mutationQuota is what one request may change; nil has no limit.
type mutationQuota struct {
	throttle *throttle
	bucket   bucketKey
	rate     float64 // partitions a second
	strict   bool
	wait     time.Duration // until the debt is paid back
}

// mutationQuotaOf is the quota of a client; its requests are refused from version strictSince on.
func (b *Broker) mutationQuotaOf(r *wire.Request, strictSince int16) *mutationQuota {
	rate, whose, ok := b.catalog.Load().limits.find(controllerMutationRate, anonymous, r.ClientID)
	if !ok {
		return nil
	}
	return &mutationQuota{throttle: &b.mutations, bucket: bucketKey{controllerMutationRate, whose}, rate: rate,
		strict: r.Version >= strictSince}
}

// take counts partitions that are about to be created or deleted, or that a request asks to validate.
func (q *mutationQuota) take(partitions int) error {
	if q == nil {
		return nil
	}
	debt, taken := q.throttle.borrow(q.bucket, float64(partitions), q.rate, !q.strict, time.Now())
	q.wait = max(q.wait, debt)
	if !taken {
		return fmt.Errorf("%w: more after %s", errMutationQuota, debt.Round(time.Millisecond))
	}
	return nil
}

// throttled says for how long the client has to keep quiet.
func (q *mutationQuota) throttled() time.Duration {
	if q == nil {
		return 0
	}
	return q.wait
}
