package config

// Type is the type of a property's value, numbered as org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigType
// and sent as it is in DescribeConfigs v3 and later.
type Type int8

const (
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

// Scope says on which resources a property can be set. A property may have both bits (min.insync.replicas).
type Scope uint8

const (
	ScopeBroker Scope = 1 << iota
	ScopeTopic
)

// Use says what the program does with a property.
type Use uint8

const (
	// Used: the code reads it.
	Used Use = iota
	// Accepted: Kafka knows it, a value is checked and kept for DescribeConfigs, and setting it gives one warning.
	Accepted
)

// Property is one row of the table.
type Property struct {
	Name    string
	Default string // in the notation of a .properties file; empty means null, except for String and List
	Doc     string
	Type    Type
	Scope   Scope

	// BrokerName is the broker property that gives a topic property its value where the topic sets none
	// (segment.bytes: log.segment.bytes). Empty: the topic property has only its own default.
	BrokerName string
	// Aliases are other properties that give this one its value when it is not set itself, in order of precedence.
	// Values in minutes, hours or seconds are converted to this property's unit.
	Aliases []string

	Min, Max *int64
	Valid    []string // the allowed values of a String, or elements of a List; empty: any

	ReadOnly  bool // cannot be altered while the broker runs
	Sensitive bool // the value is never shown
	Use       Use
}
