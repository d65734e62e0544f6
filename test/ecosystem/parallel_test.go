package ecosystem

import (
	"strings"
	"testing"
	"time"
)

// TestParallelConsumer: Confluent's Parallel Consumer in every ordering and commit mode, what it keeps in the metadata of its
// commits, and that one partition with 10 threads and 3 ms of work a record is at least 8 times as fast as a plain consumer.
func TestParallelConsumer(t *testing.T) {
	var all []string
	for _, order := range []string{"unordered", "partition", "key"} {
		for _, mode := range []string{"periodic-consumer-sync", "periodic-consumer-asynchronous", "periodic-transactional-producer"} {
			all = append(all, order+"-"+mode)
		}
	}
	all = append(all, "metadata", "speed")
	want := size(t, []string{"key-periodic-transactional-producer", "metadata", "speed"}, all)
	records, speed := size(t, "400", "1000"), size(t, "1000", "2000")
	classpath := script(t, "java/prepare", "parallel")
	b := start(t)
	p := jvm(t, classpath, "Parallel", []string{"BOOTSTRAP=" + b.Bootstrap(), "PREFIX=parallel", "SIZE=" + records, "SPEED=" + speed}, want...)
	p.wait(t, 5*time.Minute)
	passed := map[string]bool{}
	for _, line := range p.output() {
		t.Log(line)
		if words := strings.Fields(line); len(words) > 2 && words[0] == "CASE" {
			passed[words[1]] = words[2] == "PASS"
		}
	}
	for _, name := range want {
		if !passed[name] {
			t.Errorf("%s did not pass", name)
		}
	}
	if p.count("SPEED ") == 0 {
		t.Error("no speed was measured")
	}
}
