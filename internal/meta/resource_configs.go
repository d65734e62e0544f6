package meta

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// ResourceKind says what a resource is, by the numbers of Kafka's ConfigResource.Type and one of ours.
type ResourceKind int16

// The kinds of resources that have properties, beside topics.
const (
	ResourceBroker        ResourceKind = 4
	ResourceClientMetrics ResourceKind = 16
	ResourceGroup         ResourceKind = 32
	ResourceQuota         ResourceKind = 64 // ours: an entity of client quotas
)

// Resource is something other than a topic that properties were set on. The name of a broker is its id, or empty for the
// default of all brokers; how a quota's entity is written is up to the broker.
type Resource struct {
	Kind ResourceKind
	Name string
}

// ResourceChange sets and removes properties of one resource. A property that is both set and removed is set.
type ResourceChange struct {
	Resource
	Set    map[string]string
	Remove []string
}

const (
	sqlResourceConfigsRemove = `/* resource_configs_remove */
DELETE FROM pgbroker_internal.resource_configs WHERE kind = $1 AND resource = $2 AND name = ANY ($3::text[])`
	sqlResourceConfigsInsert = `/* resource_configs_insert */
INSERT INTO pgbroker_internal.resource_configs (kind, resource, name, value)
SELECT $1, $2, w.name, w.value FROM unnest($3::text[], $4::text[]) w(name, value)
ON CONFLICT (kind, resource, name) DO UPDATE SET value = excluded.value`
	sqlResourceConfigsClear = `/* resource_configs_clear */ DELETE FROM pgbroker_internal.resource_configs WHERE kind = $1 AND resource = $2`
)

// SetResourceConfigs implements CatalogStore.
func (p *Postgres) SetResourceConfigs(ctx context.Context, o Owner, changes []ResourceChange) (Catalog, error) {
	var c Catalog
	err := p.catalogTx(ctx, o, func(ctx context.Context, tx pgx.Tx, _ int32, version int64) (bool, error) {
		for i := range changes {
			if err := writeResource(ctx, tx, &changes[i]); err != nil {
				return false, err
			}
		}
		var err error
		c, err = readCatalogAs(ctx, tx, version, true)
		return true, err
	})
	if err != nil {
		return Catalog{}, fmt.Errorf("set configs: %w", err)
	}
	return c, nil
}

func writeResource(ctx context.Context, tx pgx.Tx, r *ResourceChange) error {
	if len(r.Remove) > 0 {
		remove := make([]string, len(r.Remove))
		for i, name := range r.Remove {
			remove[i] = toText(name)
		}
		if _, err := tx.Exec(ctx, sqlResourceConfigsRemove, int16(r.Kind), toText(r.Name), remove); err != nil {
			return err
		}
	}
	if len(r.Set) == 0 {
		return nil
	}
	var names, values []string
	for _, name := range slices.Sorted(maps.Keys(r.Set)) {
		names, values = append(names, toText(name)), append(values, toText(r.Set[name]))
	}
	_, err := tx.Exec(ctx, sqlResourceConfigsInsert, int16(r.Kind), toText(r.Name), names, values)
	return err
}

// put keeps one row of a resource that was read.
func (c *Catalog) put(r Resource, name, value string) {
	if c.Resources == nil {
		c.Resources = map[Resource]map[string]string{}
	}
	if c.Resources[r] == nil {
		c.Resources[r] = map[string]string{}
	}
	c.Resources[r][name] = value
}

// planResources lists the resources whose properties must become exactly what a live process knows.
func (p *ReconcilePlan) planResources(stored, known map[Resource]map[string]string) {
	all := maps.Clone(known)
	if all == nil {
		all = map[Resource]map[string]string{}
	}
	for r := range stored {
		if _, ok := all[r]; !ok {
			all[r] = nil
		}
	}
	for r, configs := range all {
		if maps.Equal(stored[r], configs) {
			continue
		}
		p.Resources = append(p.Resources, ResourceChange{Resource: r, Set: configs})
		p.loss("properties", "resource "+strconv.Itoa(int(r.Kind))+" "+r.Name, configText(configs), configText(stored[r]))
	}
}

func (p *ReconcilePlan) writeResources(ctx context.Context, tx pgx.Tx) error {
	for i := range p.Resources {
		r := &p.Resources[i]
		if _, err := tx.Exec(ctx, sqlResourceConfigsClear, int16(r.Kind), toText(r.Name)); err != nil {
			return err
		}
		if err := writeResource(ctx, tx, r); err != nil {
			return err
		}
	}
	return nil
}
