package metatest

import (
	"context"
	"maps"

	"github.com/pgbroker/pgbroker/internal/meta"
)

// SetResourceConfigs implements meta.CatalogStore.
func (m *Memory) SetResourceConfigs(ctx context.Context, o meta.Owner, changes []meta.ResourceChange) (meta.Catalog, error) {
	return m.change(ctx, "SetResourceConfigs", o, func(int32, int64) (bool, error) {
		for _, c := range changes {
			m.changeResource(c)
		}
		return true, nil
	})
}

func (m *Memory) changeResource(c meta.ResourceChange) {
	after := maps.Clone(m.db.resources[c.Resource])
	if after == nil {
		after = map[string]string{}
	}
	for _, name := range c.Remove {
		delete(after, name)
	}
	maps.Copy(after, c.Set)
	if len(after) == 0 {
		remove(m, m.db.resources, c.Resource)
		return
	}
	put(m, m.db.resources, c.Resource, after)
}

// resources is the catalog's part; nil when nothing was set.
func (m *Memory) resources() map[meta.Resource]map[string]string {
	if len(m.db.resources) == 0 {
		return nil
	}
	return maps.Clone(m.db.resources) // the inner maps are never changed in place
}
