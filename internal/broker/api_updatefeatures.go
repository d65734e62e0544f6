package broker

// UpdateFeatures (key 57), versions 0 to 2 (KIP-584). v1 upgrade types, validate only (KIP-778) · v2 no rows. One error is for all.
// Left out: other levels than those that are built. A feature keeps the level that this version of the program serves;
// asking for that level succeeds, for another is INVALID_UPDATE_VERSION with the reason.

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/wire"
)

// Upgrade types of UpdateFeatures (Kafka's FeatureUpdate.UpgradeType).
const (
	upgradeOnly     = 1
	downgradeSafe   = 2
	downgradeUnsafe = 3
)

var errFeatureLevel = errors.New("invalid update version")

func (b *Broker) handleUpdateFeatures(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.UpdateFeaturesRequest)
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	for _, u := range req.FeatureUpdates {
		if req.Version == 0 { // which can say this much only
			u.UpgradeType = upgradeOnly
			if u.AllowDowngrade {
				u.UpgradeType = downgradeSafe
			}
		}
		err := checkFeatureUpdate(u)
		if err != nil {
			resp.ErrorCode, resp.ErrorMessage = codeOf(err), messageOf(fmt.Errorf("nothing was updated: %w", err))
			resp.Results = nil
			break
		}
		if req.Version < 2 { // v2 has one outcome for all
			row := kmsg.NewUpdateFeaturesResponseResult()
			row.Feature = u.Feature
			row.ErrorMessage = kmsg.StringPtr("NONE") // Kafka's name of code 0
			resp.Results = append(resp.Results, row)
		}
	}
	done(wire.Response{Msg: resp}, nil)
}

// checkFeatureUpdate says whether a feature has the level that is wanted.
func checkFeatureUpdate(u kmsg.UpdateFeaturesRequestFeatureUpdate) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w %d for feature %s: %s", errFeatureLevel, u.MaxVersionLevel, u.Feature, fmt.Sprintf(format, args...))
	}
	if u.UpgradeType < upgradeOnly || u.UpgradeType > downgradeUnsafe {
		return refuse("unknown upgrade type %d", u.UpgradeType)
	}
	if u.MaxVersionLevel < 0 {
		return refuse("a level cannot be below 0")
	}
	for _, f := range features {
		switch {
		case f.name != u.Feature:
		case f.level == u.MaxVersionLevel:
			return nil
		case f.level < u.MaxVersionLevel:
			return refuse("this broker supports levels up to %d", f.level)
		default:
			return refuse("this broker serves level %d and cannot go below it", f.level)
		}
	}
	return refuse("this broker does not know the feature")
}
