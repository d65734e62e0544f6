package broker

// DescribeConfigs (key 32), versions 1 to 4. v1 source and synonyms (KIP-226) · v3 type and documentation (KIP-569) ·
// v4 flexible. An empty broker name means what was set for all brokers.
// Left out: levels of single loggers; there is one, "root" (see loggers.go).

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/config"
	"github.com/pgbroker/pgbroker/internal/meta"
	"github.com/pgbroker/pgbroker/internal/wire"
)

func (b *Broker) handleDescribeConfigs(_ context.Context, r *wire.Request, done wire.Done) {
	req := r.Body.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	cat := b.catalog.Load()
	for _, asked := range req.Resources {
		entries, err := b.describeResource(cat, asked.ResourceType, asked.ResourceName)
		row := kmsg.NewDescribeConfigsResponseResource()
		row.ResourceType, row.ResourceName = asked.ResourceType, asked.ResourceName
		if row.ErrorCode, row.ErrorMessage = codeOf(err), messageOf(err); err == nil {
			row.ErrorMessage = new(string) // as Kafka 4.4
		}
		for _, e := range entries {
			if len(asked.ConfigNames) == 0 || slices.Contains(asked.ConfigNames, e.Name) {
				row.Configs = append(row.Configs, configRow(e, req))
			}
		}
		resp.Resources = append(resp.Resources, row)
	}
	done(wire.Response{Msg: resp}, nil)
}

// describeResource is every property of a resource.
func (b *Broker) describeResource(cat *catalog, kind kmsg.ConfigResourceType, name string) ([]config.Entry, error) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if err := validTopicName(name); err != nil {
			return nil, err
		}
		t, ok := cat.topicByName(name)
		if !ok {
			return nil, errUnknownTopic
		}
		return cat.cfg.DescribeTopic(t.configs), nil
	case kmsg.ConfigResourceTypeBroker:
		if name == "" {
			return cat.cfg.DescribeBrokerDefault(), nil
		}
		if err := b.checkBrokerName(name); err != nil {
			return nil, err
		}
		return cat.cfg.DescribeBroker(), nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		return b.describeLoggers(name)
	case kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigResourceTypeClientMetrics:
		if name == "" {
			return nil, fmt.Errorf("%w: the name is empty", errInvalidRequest)
		}
		if kind == kmsg.ConfigResourceTypeGroupConfig {
			return cat.cfg.DescribeGroup(cat.resources[meta.Resource{Kind: meta.ResourceGroup, Name: name}]), nil
		}
		return cat.cfg.DescribeClientMetrics(cat.resources[meta.Resource{Kind: meta.ResourceClientMetrics, Name: name}]), nil
	}
	return nil, unsupportedResource(kind)
}

// checkBrokerName accepts this broker's id only.
func (b *Broker) checkBrokerName(name string) error {
	if id, err := strconv.ParseInt(name, 10, 32); err != nil || int32(id) != b.nodeID {
		return fmt.Errorf("%w: broker %q was asked and this is broker %d", errInvalidRequest, name, b.nodeID)
	}
	return nil
}

func unsupportedResource(kind kmsg.ConfigResourceType) error {
	return fmt.Errorf("%w: configuration resources of type %d are not supported", errInvalidRequest, int8(kind))
}

// configRow is an entry as the request wants to see it.
func configRow(e config.Entry, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	row := kmsg.NewDescribeConfigsResponseResourceConfig()
	row.Name, row.Value, row.ReadOnly, row.IsSensitive = e.Name, entryValue(e), e.ReadOnly, e.Sensitive
	row.Source, row.IsDefault = kmsg.ConfigSource(e.Source), e.Source == config.SourceDefault
	row.ConfigType = kmsg.ConfigType(e.Type)
	if req.IncludeDocumentation {
		row.Documentation = &e.Doc
	}
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			syn := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			syn.Name, syn.Source = s.Name, kmsg.ConfigSource(s.Source)
			if !s.Null && !e.Sensitive {
				syn.Value = &s.Value
			}
			row.ConfigSynonyms = append(row.ConfigSynonyms, syn)
		}
	}
	return row
}
