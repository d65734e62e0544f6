package config

import (
	"slices"
	"strings"
)

const (
	kafkaPrefix   = "KAFKA_"
	bitnamiPrefix = "KAFKA_CFG_"
	ourPrefix     = "PGBROKER_"
)

// kafkaVariables are KAFKA_… names that steer the scripts of Kafka's images, not the broker. A final * stands for any
// ending.
var kafkaVariables = []string{
	"VERSION", "HEAP_OPTS", "OPTS", "JMX_*", "LOG4J_*", "GC_LOG_OPTS", "JVM_PERFORMANCE_OPTS", "TOOLS_LOG4J_LOGLEVEL",
	"CREATE_TOPICS",
}

// ourVariables are PGBROKER_… names that are not properties: those of the client commands, of the tests and of the
// private Postgres.
var ourVariables = []string{"BROKERS", "PROFILE", "OUTPUT", "TLS_CA", "SASL_*", "TEST_*", "POSTGRES_BINDIR"}

// envPairs turns the environment into properties. A later list goes before an earlier one: Bitnami's spelling, Kafka's,
// ours; each in the order of the names. Empty variables count as not set: compose files write NAME=${NAME:-}.
func envPairs(environ []string) (bitnami, kafka, ours []pair) {
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case strings.TrimSpace(value) == "":
		case strings.HasPrefix(name, bitnamiPrefix):
			bitnami = append(bitnami, pair{key: propertyName(name[len(bitnamiPrefix):]), value: value})
		case strings.HasPrefix(name, kafkaPrefix) && !listed(kafkaVariables, name[len(kafkaPrefix):]):
			kafka = append(kafka, pair{key: propertyName(name[len(kafkaPrefix):]), value: value})
		case strings.HasPrefix(name, ourPrefix) && !listed(ourVariables, name[len(ourPrefix):]):
			ours = append(ours, pair{key: propertyName(name[len(ourPrefix):]), value: value})
		}
	}
	return bitnami, kafka, ours
}

func listed(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if prefix, any := strings.CutSuffix(pattern, "*"); any {
			return strings.HasPrefix(name, prefix)
		}
		return name == pattern
	})
}

// propertyName undoes the spelling of Kafka's images: ___ is a dash, __ an underscore, _ a dot.
func propertyName(variable string) string {
	return strings.NewReplacer("___", "-", "__", "_", "_", ".").Replace(strings.ToLower(variable))
}

// variableName is how the environment spells a property.
func variableName(prefix, property string) string {
	return prefix + strings.ToUpper(strings.NewReplacer("-", "___", "_", "__", ".", "_").Replace(property))
}
