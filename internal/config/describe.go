package config

import (
	"maps"
	"slices"
)

// EntrySource is the place a value came from, numbered as Kafka's ConfigSource in DescribeConfigs.
type EntrySource int8

// The sources of DescribeConfigs.
const (
	SourceDynamicTopic         EntrySource = 1
	SourceDynamicBroker        EntrySource = 2
	SourceDynamicDefaultBroker EntrySource = 3
	SourceStaticBroker         EntrySource = 4
	SourceDefault              EntrySource = 5
	SourceBrokerLogger         EntrySource = 6
	SourceClientMetrics        EntrySource = 7
	SourceGroup                EntrySource = 8
)

// Synonym is a name and value that an entry has, or would have, from another source.
type Synonym struct {
	Name, Value string
	Null        bool
	Source      EntrySource
}

// Entry is one row of a DescribeConfigs answer.
type Entry struct {
	Name, Value string
	Null        bool // the value is null on the wire: not set, or sensitive
	Source      EntrySource
	Type        Type
	ReadOnly    bool
	Sensitive   bool
	Doc         string
	Synonyms    []Synonym // in order of precedence; the first one that is set is the effective one
}

// DescribeTopic returns every topic property with its effective value, sorted by name. An override keeps the source
// "topic" even when it equals the default. Overrides that are not in the table are left out.
func (c *Config) DescribeTopic(overrides map[string]string) []Entry {
	var entries []Entry
	for _, p := range Properties() {
		if p.Scope&ScopeTopic == 0 {
			continue
		}
		e := p.entry()
		e.ReadOnly = false
		if value, ok := overrides[p.Name]; ok {
			if kept, err := p.parse(value); err == nil {
				value = kept
			}
			e.Synonyms = append(e.Synonyms, p.synonym(p.Name, value, SourceDynamicTopic))
		}
		if p.BrokerName != "" {
			e.Synonyms = append(e.Synonyms, c.synonyms(p.BrokerName)...)
		}
		e.Value, e.Source = p.Default, SourceDefault
		if p.BrokerName != "" {
			e.Value = c.String(p.BrokerName)
		}
		if len(e.Synonyms) > 0 {
			e.Source = e.Synonyms[0].Source
		}
		if e.Source == SourceDynamicTopic {
			e.Value = e.Synonyms[0].Value
		}
		e.Null = p.isNull(e.Value)
		entries = append(entries, e)
	}
	return entries
}

// DescribeBroker returns every broker property with its effective value, sorted by name.
func (c *Config) DescribeBroker() []Entry {
	var entries []Entry
	for _, p := range Properties() {
		if p.Scope&ScopeBroker == 0 {
			continue
		}
		e := p.entry()
		e.ReadOnly = !isDynamic(p.Name)
		// As in Kafka, each name has its own setting here: an alias does not speak for it.
		e.Value, e.Source = p.Default, SourceDefault
		e.Synonyms = c.givenSynonyms(&p)
		if len(e.Synonyms) > 0 {
			e.Value, e.Source = e.Synonyms[0].Value, e.Synonyms[0].Source
		} else if p.hidden {
			continue
		}
		dynamic := e.Source == SourceDynamicBroker || e.Source == SourceDynamicDefaultBroker
		if p.hasDefault() {
			e.Synonyms = append(e.Synonyms, p.synonym(p.Name, p.Default, SourceDefault))
		} else if dynamic {
			e.Synonyms = append(e.Synonyms, aliasDefaults(&p)...)
		}
		e.Null = p.isNull(e.Value) || e.Value == "" && e.Source == SourceDefault && !p.empty
		if e.Sensitive {
			e.Value = ""
		}
		entries = append(entries, e)
	}
	return entries
}

// DescribeBrokerDefault returns what was set for all brokers while they ran, sorted by name.
func (c *Config) DescribeBrokerDefault() []Entry {
	var entries []Entry
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		p := table().byName[name]
		e := p.entry()
		e.Value, e.Source, e.Null = c.all[name], SourceDynamicDefaultBroker, p.isNull(c.all[name])
		e.Synonyms = []Synonym{p.synonym(name, e.Value, e.Source)}
		entries = append(entries, e)
	}
	return entries
}

// DescribeGroup returns every property of a group with its effective value, sorted by name.
func (c *Config) DescribeGroup(overrides map[string]string) []Entry {
	return c.describeOwned(ScopeGroup, SourceGroup, overrides)
}

// DescribeClientMetrics returns every property of a subscription with its effective value, sorted by name.
func (c *Config) DescribeClientMetrics(overrides map[string]string) []Entry {
	return c.describeOwned(ScopeClientMetrics, SourceClientMetrics, overrides)
}

// describeOwned describes resources whose properties are their own or those of the broker that BrokerName names.
func (c *Config) describeOwned(scope Scope, source EntrySource, overrides map[string]string) []Entry {
	var entries []Entry
	for _, p := range Properties() {
		if p.Scope&scope == 0 {
			continue
		}
		e := p.entry()
		e.ReadOnly = false
		e.Value, e.Source = p.Default, SourceDefault
		if value, ok := overrides[p.Name]; ok {
			e.Synonyms = append(e.Synonyms, p.synonym(p.Name, value, source))
		}
		switch {
		case p.BrokerName != "":
			e.Value = c.String(p.BrokerName)
			e.Synonyms = append(e.Synonyms, c.synonyms(p.BrokerName)...)
		case scope == ScopeGroup: // as in Kafka, which lists the default of a group's property and not of a subscription's
			e.Synonyms = append(e.Synonyms, p.synonym(p.Name, p.Default, SourceDefault))
		}
		if value, ok := overrides[p.Name]; ok {
			e.Value, e.Source = value, source
		} else if len(e.Synonyms) > 0 {
			e.Source = e.Synonyms[0].Source
		}
		entries = append(entries, e)
	}
	return entries
}

// synonyms lists what the sources say of a broker property, then its default. An alias is listed where it gives the
// value; Kafka leaves those out and calls the value a default.
func (c *Config) synonyms(name string) []Synonym {
	p := table().byName[name]
	all := c.givenSynonyms(p)
	_, from, source := c.resolve(name)
	if source != Default && from.Name != name { // in the alias's own unit
		all = append(all, from.synonym(from.Name, c.set[from.Name].value, SourceStaticBroker))
	}
	switch {
	case p.hasDefault():
		all = append(all, p.synonym(name, p.Default, SourceDefault))
	case source == Dynamic || source == DynamicDefault:
		all = append(all, aliasDefaults(p)...)
	}
	return all
}

// givenSynonyms lists what the sources say of one name, the strongest first.
func (c *Config) givenSynonyms(p *Property) []Synonym {
	var all []Synonym
	if value, ok := c.own[p.Name]; ok {
		all = append(all, p.synonym(p.Name, value, SourceDynamicBroker))
	}
	if value, ok := c.all[p.Name]; ok {
		all = append(all, p.synonym(p.Name, value, SourceDynamicDefaultBroker))
	}
	if s, ok := c.set[p.Name]; ok {
		all = append(all, p.synonym(p.Name, s.value, SourceStaticBroker))
	}
	return all
}

// aliasDefaults are the defaults that would hold without the dynamic value of a property that has none itself.
func aliasDefaults(p *Property) []Synonym {
	var all []Synonym
	for _, alias := range p.Aliases {
		if row := table().byName[alias]; row.hasDefault() {
			all = append(all, row.synonym(alias, row.Default, SourceDefault))
		}
	}
	return all
}

func (p *Property) entry() Entry {
	return Entry{Name: p.Name, Type: p.Type, Sensitive: p.Sensitive, Doc: p.Doc}
}

func (p *Property) synonym(name, value string, source EntrySource) Synonym {
	s := Synonym{Name: name, Value: value, Source: source, Null: p.isNull(value)}
	if p.Sensitive {
		s.Value = ""
	}
	return s
}

func (p *Property) isNull(value string) bool {
	return p.Sensitive || value == "" && p.Type != List && !p.empty
}

func (p *Property) hasDefault() bool { return p.Default != "" || p.empty }
