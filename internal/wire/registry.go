package wire

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// apiVersionsKey is the request that may come in any version (KIP-35).
const apiVersionsKey = int16(kmsg.ApiVersions)

// VersionRange is one row of an ApiVersions answer.
type VersionRange struct {
	Key, Min, Max int16
}

// Registry is the checked list of APIs. It does not change after NewRegistry.
type Registry struct {
	byKey []*route // index is the key; nil for unknown
	keys  []int16  // ascending
}

// route is an API with what is known of it before the first request.
type route struct {
	API
	name        string
	flexibleMin int16   // first version with tagged fields in the headers (KIP-482); above Max if none
	weights     []int64 // of each version from Min: see decodedWeights
	shape       *shape  // of the decoded request; nil if its memory does not depend on its input
}

// NewRegistry checks the list: no key twice, no empty range, none that kmsg cannot encode.
func NewRegistry(apis []API) (*Registry, error) {
	r := &Registry{}
	for _, a := range apis {
		rt, err := newRoute(a)
		if err != nil {
			return nil, err
		}
		for int(a.Key) >= len(r.byKey) {
			r.byKey = append(r.byKey, nil)
		}
		if r.byKey[a.Key] != nil {
			return nil, fmt.Errorf("api %s (%d) is listed twice", rt.name, a.Key)
		}
		r.byKey[a.Key] = rt
		r.keys = append(r.keys, a.Key)
	}
	slices.Sort(r.keys)
	return r, nil
}

func newRoute(a API) (*route, error) {
	msg := kmsg.RequestForKey(a.Key)
	if msg == nil || a.Key < 0 {
		return nil, fmt.Errorf("api key %d is unknown to the codec", a.Key)
	}
	name := kmsg.NameForKey(a.Key)
	switch {
	case a.Min < 0 || a.Min > a.Max:
		return nil, fmt.Errorf("api %s: versions %d to %d are no range", name, a.Min, a.Max)
	case a.AdvertisedMin < 0 || a.AdvertisedMin > a.Min:
		return nil, fmt.Errorf("api %s: advertised minimum %d is not within 0 to %d", name, a.AdvertisedMin, a.Min)
	case a.Max > msg.MaxVersion():
		return nil, fmt.Errorf("api %s: the codec knows versions up to %d, not %d", name, msg.MaxVersion(), a.Max)
	case a.Handle == nil:
		return nil, fmt.Errorf("api %s: no handler", name)
	}
	rt := &route{API: a, name: name, flexibleMin: a.Max + 1}
	for v := a.Max; v >= a.Min; v-- {
		msg.SetVersion(v)
		if !msg.IsFlexible() {
			break
		}
		rt.flexibleMin = v
	}
	rt.weights = decodedWeights(a.Key, a.Min, a.Max)
	rt.shape = shapeOf(reflect.TypeOf(msg))
	return rt, nil
}

// AdvertisedRanges lists what ApiVersions answers, by ascending key.
func (r *Registry) AdvertisedRanges() []VersionRange {
	out := make([]VersionRange, 0, len(r.keys))
	for _, k := range r.keys {
		a := r.byKey[k]
		out = append(out, VersionRange{Key: k, Min: a.AdvertisedMin, Max: a.Max})
	}
	return out
}

// lookup finds the row of a key, nil if there is none.
func (r *Registry) lookup(key int16) *route {
	if key < 0 || int(key) >= len(r.byKey) {
		return nil
	}
	return r.byKey[key]
}

// flexible says whether headers of this version carry tagged fields.
func (rt *route) flexible(version int16) bool { return version >= rt.flexibleMin }

func (rt *route) serves(version int16) bool { return version >= rt.Min && version <= rt.Max }
