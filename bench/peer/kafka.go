package peer

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kafkaJVM are the options with which Kafka's own start script runs a broker.
var kafkaJVM = []string{"-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
	"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"}

// kafka formats a folder for a single node (KRaft, broker and controller in one). All of Kafka's defaults hold but those that
// need more than one broker.
func (n *Node) kafka(ctx context.Context, port int) error {
	out, err := exec.CommandContext(ctx, n.opts.Assemble).Output()
	if err != nil {
		return fmt.Errorf("assemble Kafka's jars: %w", err)
	}
	jars := strings.TrimSpace(string(out))
	properties := []string{
		"process.roles=broker,controller", "node.id=1",
		fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", port+1), "controller.listener.names=CONTROLLER",
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", port, port+1),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d", port),
		"log.dirs=" + filepath.Join(n.dir, "log"),
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1",
	}
	n.Settings["jvm"] = strings.Join(kafkaJVM[:4], " ")
	if n.Name == KafkaFlush {
		n.Settings["log.flush.interval.messages"] = "1"
		properties = append(properties, "log.flush.interval.messages=1")
	}
	file := filepath.Join(n.dir, "server.properties")
	if err := os.WriteFile(file, []byte(strings.Join(properties, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	java := func(args ...string) *exec.Cmd {
		all := append(append([]string{}, kafkaJVM...), "-Dlog4j2.configurationFile="+n.opts.Log4j, "-cp", jars+"/*")
		return exec.Command("java", append(all, args...)...)
	}
	format := java("kafka.tools.StorageTool", "format", "-t", "pgbrokerBenchmarkClstA", "-c", file)
	if out, err := format.CombinedOutput(); err != nil {
		return fmt.Errorf("format the folder: %w: %s", err, out)
	}
	n.command = func() *exec.Cmd { return java("kafka.Kafka", file) }
	return nil
}
