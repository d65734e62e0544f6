package config

// EntrySource is the place a value came from, numbered as Kafka's ConfigSource in DescribeConfigs.
type EntrySource int8

// The sources of DescribeConfigs.
const (
	SourceDynamicTopic         EntrySource = 1
	SourceDynamicBroker        EntrySource = 2
	SourceDynamicDefaultBroker EntrySource = 3
	SourceStaticBroker         EntrySource = 4
	SourceDefault              EntrySource = 5
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

// DescribeBroker returns every broker property with its effective value, sorted by name. All are read-only: they come
// from files, the environment and flags.
func (c *Config) DescribeBroker() []Entry {
	var entries []Entry
	for _, p := range Properties() {
		if p.Scope&ScopeBroker == 0 {
			continue
		}
		e := p.entry()
		e.ReadOnly = true
		e.Source = SourceDefault
		// As in Kafka, each name has its own setting here: an alias does not speak for it.
		e.Value = p.Default
		if s, ok := c.set[p.Name]; ok {
			e.Value, e.Source = s.value, SourceStaticBroker
			e.Synonyms = append(e.Synonyms, p.synonym(p.Name, s.value, SourceStaticBroker))
		}
		if p.Default != "" {
			e.Synonyms = append(e.Synonyms, p.synonym(p.Name, p.Default, SourceDefault))
		}
		e.Null = p.isNull(e.Value) || e.Value == "" && e.Source == SourceDefault
		if e.Sensitive {
			e.Value = ""
		}
		entries = append(entries, e)
	}
	return entries
}

// synonyms lists what the sources say of a broker property, then its default. An alias is listed where it gives the
// value; Kafka leaves those out and calls the value a default.
func (c *Config) synonyms(name string) []Synonym {
	p := table().byName[name]
	var all []Synonym
	if value, from, source := c.resolve(name); source != Default {
		if from.Name != name {
			value = c.set[from.Name].value // in the alias's own unit
		}
		all = append(all, from.synonym(from.Name, value, SourceStaticBroker))
	}
	if p.Default != "" {
		all = append(all, p.synonym(name, p.Default, SourceDefault))
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
	return p.Sensitive || value == "" && p.Type != List
}
