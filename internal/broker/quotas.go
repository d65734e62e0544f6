package broker

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// Types of which an entity of client quotas is made (Kafka's ClientQuotaEntity).
const (
	quotaUser     = "user"
	quotaClientID = "client-id"
	quotaIP       = "ip"
)

// quotaKey is a property of a quota (Kafka's QuotaConfig).
type quotaKey struct {
	ofIP    bool
	whole   bool // no fraction
	largest float64
}

var quotaKeys = map[string]quotaKey{
	producerByteRate:       {whole: true, largest: math.MaxInt64},
	consumerByteRate:       {whole: true, largest: math.MaxInt64},
	requestPercentage:      {largest: math.MaxFloat64},
	controllerMutationRate: {largest: math.MaxFloat64},
	connectionCreationRate: {ofIP: true, whole: true, largest: math.MaxInt32},
}

var errQuotaType = errors.New("unsupported entity type")

// quotaPart is one type of an entity with its name; a null name is the default of all names.
type quotaPart struct {
	kind string
	name *string
}

// quotaEntity is whom a quota is for, sorted by type, each type once.
type quotaEntity []quotaPart

// newQuotaEntity sorts the parts that a request gave; of a type that is given twice the last one counts, as in Kafka.
func newQuotaEntity(parts []quotaPart) quotaEntity {
	last := map[string]quotaPart{}
	for _, p := range parts {
		last[p.kind] = p
	}
	e := make(quotaEntity, 0, len(last))
	for _, p := range last {
		e = append(e, p)
	}
	slices.SortFunc(e, func(a, b quotaPart) int { return strings.Compare(a.kind, b.kind) })
	return e
}

// key writes an entity as it is stored: "client-id=c&user=u", names escaped as in a URL, a type alone for the default.
func (e quotaEntity) key() string {
	parts := make([]string, len(e))
	for i, p := range e {
		parts[i] = p.kind
		if p.name != nil {
			parts[i] += "=" + url.QueryEscape(*p.name)
		}
	}
	return strings.Join(parts, "&")
}

// parseQuotaEntity reads what key wrote; ok is false for what somebody else wrote.
func parseQuotaEntity(key string) (e quotaEntity, ok bool) {
	for part := range strings.SplitSeq(key, "&") {
		kind, escaped, named := strings.Cut(part, "=")
		p := quotaPart{kind: kind}
		if named {
			name, err := url.QueryUnescape(escaped)
			if err != nil {
				return nil, false
			}
			p.name = &name
		}
		e = append(e, p)
	}
	return e, e.check() == nil
}

func (e quotaEntity) part(kind string) (quotaPart, bool) {
	for _, p := range e {
		if p.kind == kind {
			return p, true
		}
	}
	return quotaPart{}, false
}

// check says whether quotas can be set on the entity.
func (e quotaEntity) check() error {
	if len(e) == 0 {
		return fmt.Errorf("%w: the entity is empty", errInvalidRequest)
	}
	for _, p := range e {
		switch {
		case p.kind != quotaUser && p.kind != quotaClientID && p.kind != quotaIP:
			return fmt.Errorf("%w: unknown entity type %q", errInvalidRequest, p.kind)
		case p.name != nil && (*p.name == "" || len(*p.name) > maxConfigName):
			return fmt.Errorf("%w: a name of 1 to %d bytes is needed for %s", errInvalidRequest, maxConfigName, p.kind)
		case p.kind == quotaIP && len(e) > 1:
			return fmt.Errorf("%w: an ip cannot be combined with a user or client-id", errInvalidRequest)
		case p.kind == quotaIP && p.name != nil && net.ParseIP(*p.name) == nil:
			return fmt.Errorf("%w: %q is not an IP address", errInvalidRequest, *p.name)
		}
	}
	return nil
}

// checkQuota says whether an entity can have a value.
func (e quotaEntity) checkQuota(key string, value float64) error {
	_, ofIP := e.part(quotaIP)
	k, known := quotaKeys[key]
	switch {
	case !known || k.ofIP != ofIP:
		return fmt.Errorf("%w: unknown quota %s", errInvalidRequest, key)
	case !(value > 0):
		return fmt.Errorf("%w: quota %s must be greater than 0", errInvalidRequest, key)
	case value > k.largest:
		return fmt.Errorf("%w: quota %s is too large", errInvalidRequest, key)
	case k.whole && value != math.Trunc(value):
		return fmt.Errorf("%w: quota %s cannot have a fraction", errInvalidRequest, key)
	}
	return nil
}

// quota is what is stored for one entity.
type quota struct {
	entity quotaEntity
	values map[string]float64
}

// quotas lists what is stored, sorted by entity. Rows that make no sense are left out.
func (c *catalog) quotas() []quota {
	var list []quota
	for r, stored := range c.resources {
		if r.Kind != meta.ResourceQuota {
			continue
		}
		entity, ok := parseQuotaEntity(r.Name)
		if !ok {
			continue
		}
		q := quota{entity: entity, values: map[string]float64{}}
		for key, text := range stored {
			if value, err := strconv.ParseFloat(text, 64); err == nil && entity.checkQuota(key, value) == nil {
				q.values[key] = value
			}
		}
		if len(q.values) > 0 {
			list = append(list, q)
		}
	}
	slices.SortFunc(list, func(a, b quota) int { return strings.Compare(a.entity.key(), b.entity.key()) })
	return list
}
