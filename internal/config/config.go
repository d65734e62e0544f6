package config

import "time"

// Source says where a value came from.
type Source uint8

const (
	Default Source = iota
	File
	Env
	Flag
)

// Sources are the places that Load reads, in rising precedence: File, Env, Set.
type Sources struct {
	File string                            // path of a .properties file; empty: none
	Read func(path string) ([]byte, error) // reads File
	Env  []string                          // NAME=value, as os.Environ gives them
	Set  []string                          // key=value, as --set takes them
}

// Config holds the effective value of every broker property. It does not change after Load; any number of goroutines may
// read it.
type Config struct {
	set map[string]setting
}

type setting struct {
	value  string
	source Source
}

// Load reads the sources. The warnings are for the log. The error names every bad key and value, never a secret one.
func Load(src Sources) (*Config, []string, error) { return &Config{}, nil, nil }

func (c *Config) String(name string) string          { return "" }
func (c *Config) Int(name string) int                { return 0 }
func (c *Config) Int64(name string) int64            { return 0 }
func (c *Config) Bool(name string) bool              { return false }
func (c *Config) Float(name string) float64          { return 0 }
func (c *Config) List(name string) []string          { return nil }
func (c *Config) Duration(name string) time.Duration { return 0 }
func (c *Config) Source(name string) Source          { return Default }

// Listener is one address that clients connect to.
type Listener struct {
	Name     string // upper case, as in listeners
	Protocol string // PLAINTEXT
	Host     string // to bind; empty: all addresses
	Port     int    // 0: chosen when bound

	AdvertisedHost string
	AdvertisedPort int // 0: the bound port
}

// Listeners returns the listeners of clients, in the order of `listeners`.
func (c *Config) Listeners() ([]Listener, error) { return nil, nil }

// Values of message.timestamp.type.
const (
	CreateTime    = "CreateTime"
	LogAppendTime = "LogAppendTime"
)

// Topic holds the effective values of one topic. Fields named …Ms are milliseconds, …Bytes bytes;
// math.MaxInt64 in FlushMessages and FlushMs means never, -1 in the Retention fields means without limit.
type Topic struct {
	SegmentBytes         int
	SegmentMs            int64
	SegmentJitterMs      int64
	IndexBytes           int
	IndexIntervalBytes   int
	RetentionBytes       int64
	RetentionMs          int64
	CleanupDelete        bool
	CleanupCompact       bool
	MaxMessageBytes      int
	FlushMessages        int64
	FlushMs              int64
	FileDeleteDelayMs    int64
	MessageTimestampType string
	TimestampBeforeMaxMs int64
	TimestampAfterMaxMs  int64
	CompressionType      string // uncompressed, gzip, snappy, lz4, zstd, producer
	CompressionGzipLevel int
	CompressionLz4Level  int
	CompressionZstdLevel int
	MinInsyncReplicas    int
	MinCompactionLagMs   int64
	MaxCompactionLagMs   int64
	DeleteRetentionMs    int64

	MinCleanableDirtyRatio      float64
	MaxDecompressedMessageBytes int
	Preallocate                 bool
	UncleanLeaderElection       bool
}

// Topic returns the effective values for a topic with these overrides.
func (c *Config) Topic(overrides map[string]string) (Topic, error) { return Topic{}, nil }

// ValidateTopic checks one override of a topic. An unknown name is an error.
func ValidateTopic(name, value string) error { return nil }

// Lookup returns the row of a name.
func Lookup(name string) (Property, bool) { return Property{}, false }

// Properties returns the whole table, sorted by name.
func Properties() []Property { return nil }

// EntrySource is the place a value came from, numbered as Kafka's ConfigSource in DescribeConfigs.
type EntrySource int8

const (
	SourceDynamicTopic         EntrySource = 1
	SourceDynamicBroker        EntrySource = 2
	SourceDynamicDefaultBroker EntrySource = 3
	SourceStaticBroker         EntrySource = 4
	SourceDefault              EntrySource = 5
)

// Synonym is a name and value that an Entry would have had from another source.
type Synonym struct {
	Name, Value string
	Null        bool
	Source      EntrySource
}

// Entry is one row of a DescribeConfigs answer.
type Entry struct {
	Name, Value string
	Null        bool // the value is null on the wire: not set, or Sensitive
	Source      EntrySource
	Type        Type
	ReadOnly    bool
	Sensitive   bool
	Doc         string
	Synonyms    []Synonym // the first is the effective one
}

// DescribeTopic returns every topic property, sorted by name.
func (c *Config) DescribeTopic(overrides map[string]string) []Entry { return nil }

// DescribeBroker returns every broker property, sorted by name.
func (c *Config) DescribeBroker() []Entry { return nil }
