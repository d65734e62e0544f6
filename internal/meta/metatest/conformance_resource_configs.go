package metatest

import (
	"fmt"
	"maps"

	"github.com/pgbroker/pgbroker/internal/meta"
)

var resourceConfigCases = []suiteCase{
	{"properties of brokers, groups and quotas are set, replaced and removed, with the catalog", func(s *suite) {
		o := s.start()
		group, all := meta.Resource{Kind: meta.ResourceGroup, Name: "g \x00"}, meta.Resource{Kind: meta.ResourceBroker}
		before := s.catalog(o).Cluster.CatalogVersion
		c, err := s.store.SetResourceConfigs(s.ctx, o, []meta.ResourceChange{
			{Resource: group, Set: map[string]string{"a": "1", "b": "nul \x00"}}, {Resource: all, Set: map[string]string{"a": "2"}},
		})
		s.ok(err)
		equal(s, "version", c.Cluster.CatalogVersion, before+1)
		equal(s, "resources", fmt.Sprint(len(c.Resources), c.Resources[group], c.Resources[all]), fmt.Sprint(2, map[string]string{"a": "1", "b": "nul \x00"}, map[string]string{"a": "2"}))
		c, err = s.store.SetResourceConfigs(s.ctx, o, []meta.ResourceChange{
			{Resource: group, Set: map[string]string{"b": "3"}, Remove: []string{"a", "never"}}, {Resource: all, Remove: []string{"a"}},
		})
		s.ok(err)
		equal(s, "resources afterwards", len(c.Resources), 1)
		equal(s, "group afterwards", maps.Equal(c.Resources[group], map[string]string{"b": "3"}), true)
		equal(s, "read again", maps.Equal(s.catalog(o).Resources[group], map[string]string{"b": "3"}), true)
	}},
	{"properties of resources need the owner", func(s *suite) {
		o := s.start()
		o.Incarnation++
		_, err := s.store.SetResourceConfigs(s.ctx, o, []meta.ResourceChange{{Resource: meta.Resource{Kind: meta.ResourceBroker}, Set: map[string]string{"a": "2"}}})
		equal(s, "refused", err != nil, true)
	}},
	{"properties of resources that a live process knows are put back, and those that it does not know go", func(s *suite) {
		o, shards := s.taken()
		kept, back, gone := meta.Resource{Kind: meta.ResourceGroup, Name: "kept"}, meta.Resource{Kind: meta.ResourceQuota, Name: "back"}, meta.Resource{Kind: meta.ResourceBroker, Name: "1"}
		c, err := s.store.SetResourceConfigs(s.ctx, o, []meta.ResourceChange{{Resource: kept, Set: map[string]string{"a": "1"}}, {Resource: gone, Set: map[string]string{"b": "2"}}})
		s.ok(err)
		k := known(o, c, shards)
		k.Catalog.Cluster.CatalogVersion += 10
		k.Catalog.Resources = map[meta.Resource]map[string]string{kept: {"a": "1"}, back: {"c": "3"}}
		got := s.reconcile(registration(1), k)
		equal(s, "resources", fmt.Sprint(got.Catalog.Resources), fmt.Sprint(k.Catalog.Resources))
		equal(s, "losses", len(got.Losses), 2)
	}},
}
