package broker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pgbroker/pgbroker/internal/config"
)

// rootLogger is the one logger that there is: its level holds for the whole program.
const rootLogger = "root"

// logLevels are Kafka's words for slog's levels, the lowest first. TRACE and FATAL are the nearest there is.
var logLevels = []struct {
	name  string
	level slog.Level
}{{"TRACE", slog.LevelDebug}, {"DEBUG", slog.LevelDebug}, {"INFO", slog.LevelInfo}, {"WARN", slog.LevelWarn}, {"ERROR", slog.LevelError}, {"FATAL", slog.LevelError}}

// describeLoggers describes the loggers of this broker.
func (b *Broker) describeLoggers(name string) ([]config.Entry, error) {
	if err := b.checkBrokerName(name); err != nil {
		return nil, err
	}
	level := "FATAL"
	for _, l := range logLevels[1:] {
		if b.log.Enabled(context.Background(), l.level) {
			level = l.name
			break
		}
	}
	return []config.Entry{{Name: rootLogger, Value: level, Source: config.SourceBrokerLogger, ReadOnly: b.logLevel == nil}}, nil
}

// alterLoggers changes the level of the log until the next start.
func (b *Broker) alterLoggers(name string, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig, validateOnly bool) error {
	if err := b.checkBrokerName(name); err != nil {
		return err
	}
	var seen []string
	var next *slog.Level
	for _, op := range ops {
		level, err := levelOf(op)
		switch {
		case slices.Contains(seen, op.Name):
			return fmt.Errorf("%w: %s is named more than once", errInvalidRequest, op.Name)
		case err != nil:
			return err
		case b.logLevel == nil:
			return fmt.Errorf("%w: the level of the log is fixed", errInvalidRequest)
		}
		seen, next = append(seen, op.Name), &level
	}
	if next != nil && !validateOnly {
		b.logLevel.Set(*next)
		b.log.Warn("the level of the log was changed", "level", strconv.Quote(next.String()))
	}
	return nil
}

// levelOf is the level that an operation sets; the codes are Kafka's.
func levelOf(op kmsg.IncrementalAlterConfigsRequestResourceConfig) (slog.Level, error) {
	switch op.Op {
	case kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete:
	default:
		return 0, fmt.Errorf("%w: loggers know SET and DELETE only", errInvalidRequest)
	}
	if op.Name != rootLogger {
		return 0, fmt.Errorf("%w: logger %s does not exist; there is %s", errInvalidConfig, op.Name, rootLogger)
	}
	if op.Op == kmsg.IncrementalAlterConfigOpDelete {
		return 0, fmt.Errorf("%w: the level of the root logger cannot be removed", errInvalidRequest)
	}
	if op.Value == nil {
		return 0, fmt.Errorf("%w: %s has a null value", errInvalidRequest, op.Name)
	}
	var names []string
	for _, l := range logLevels {
		if l.name == strings.ToUpper(*op.Value) {
			return l.level, nil
		}
		names = append(names, l.name)
	}
	return 0, fmt.Errorf("%w: level %s of %s; levels are %s", errInvalidConfig, *op.Value, op.Name, strings.Join(names, ", "))
}
