package config

// Type is the type of a property's value, numbered as org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigType
// and sent as it is in DescribeConfigs v3 and later.
type Type int8

// The types, by Kafka's numbers.
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

var typeNames = map[string]Type{
	"boolean": Boolean, "string": String, "int": Int, "short": Short, "long": Long,
	"double": Double, "list": List, "class": Class, "password": Password,
}

// Scope says on which resources a property can be set. A property may have both bits (min.insync.replicas).
type Scope uint8

// The resources.
const (
	ScopeBroker Scope = 1 << iota
	ScopeTopic
	ScopeGroup
	ScopeClientMetrics
)

// Use says what the program does with a property.
type Use uint8

const (
	// Used properties are read by the code.
	Used Use = iota
	// Accepted properties are known to Kafka: the value is checked and described, and setting it gives one warning.
	Accepted
)

// Property is one row of the table.
type Property struct {
	Name    string
	Default string // in the notation of a .properties file; empty is null, except for a List
	Doc     string
	Type    Type
	Scope   Scope

	// BrokerName is the broker property that gives a topic property its value where the topic sets none
	// (segment.bytes: log.segment.bytes). Empty: the topic property has only its own default.
	BrokerName string
	// Aliases are other properties that give this one its value when it is not set itself, in order of precedence.
	// Values in minutes or hours are converted to this property's unit.
	Aliases []string

	Min, Max *int64
	Valid    []string // the allowed values of a String, or items of a List; empty: any

	ReadOnly  bool // cannot be altered while the broker runs
	Sensitive bool // the value is never shown
	Use       Use

	empty   bool                     // the default is the empty value, and not null
	hidden  bool                     // described only while it is set
	anyCase bool                     // Valid ignores case
	check   func(value string) error // what the fields above cannot say; sees the kept notation
}

func at(n int64) *int64 { return &n }
