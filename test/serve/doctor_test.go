package serve

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/test/harness"
)

// TestDoctorBench: each phase has figures, each suspect a verdict, and nothing is left behind, also after an interrupt.
func TestDoctorBench(t *testing.T) {
	t.Parallel()
	n := serve(t, database(t))
	c := commandLine{t, n}
	n.createTopics(1, "orders")
	produce(t, n.client(), "orders", "mine")

	r := c.run("", "doctor", "bench", "--for", "2s", "--http", n.httpURL, "-o", "json")
	if r.code != 0 && r.code != 10 && r.code != 11 || r.took > 30*time.Second { // a busy machine may be slow, and is told so
		t.Fatalf("exit code %d after %s\n%s%s", r.code, r.took, r.out, r.errs)
	}
	type phase struct {
		Name     string
		Requests int64
		Records  int64
		Seconds  float64
		P50      float64  `json:"p50_ms"`
		P99      float64  `json:"p99_ms"`
		Broker   *float64 `json:"broker_cpu_cores"`
		Fsyncs   *float64
		Error    string
	}
	var doc struct {
		Kind  string
		Items []struct {
			Findings []struct{ Suspect, Verdict, Evidence string }
			Figures  struct {
				SameMachine  bool `json:"same_machine"`
				Durability   string
				Ping, Single phase
				Batches      []phase
				Fetch        phase
				Transactions []phase
				Served       struct {
					Records float64
				} `json:"served_before"`
			}
		}
	}
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || doc.Kind != "DoctorBench" || len(doc.Items) != 1 {
		t.Fatalf("%v\n%s", err, r.out)
	}
	f := doc.Items[0].Figures
	if f.Durability != "strict" || !f.SameMachine || f.Served.Records != 1 || len(f.Batches) != 4 || len(f.Transactions) != 3 {
		t.Errorf("figures: %s", r.out)
	}
	for _, p := range slices.Concat([]phase{f.Ping, f.Single, f.Fetch}, f.Batches, f.Transactions) {
		if p.Error != "" || p.Requests <= 0 || p.Seconds <= 0 || p.P50 <= 0 || p.P99 < p.P50 || p.Broker == nil {
			t.Errorf("%+v", p)
		}
	}
	for _, p := range append(f.Batches, f.Single) { // strict: an answer is behind an fsync
		if p.Fsyncs == nil || *p.Fsyncs <= 0 {
			t.Errorf("%s: no fsync", p.Name)
		}
	}
	if written := f.Single.Records + f.Batches[0].Records + f.Batches[1].Records + f.Batches[2].Records + f.Batches[3].Records; f.Fetch.Records > written+10 {
		t.Errorf("%d records written, %d fetched", written, f.Fetch.Records)
	}
	var suspects []string
	for _, j := range doc.Items[0].Findings {
		suspects = append(suspects, j.Suspect)
		if !slices.Contains([]string{"binds", "free", "unknown"}, j.Verdict) || j.Evidence == "" {
			t.Errorf("%+v", j)
		}
	}
	if got := strings.Join(suspects, ", "); got != "client batching, CPU, disk, network, coordinator" {
		t.Errorf("suspects: %s", got)
	}
	c.want("NAME PARTITIONS REPLICAS\norders 1 1", "topic", "list")

	cmd := exec.Command(harness.Binary(t), "doctor", "bench", "-b", n.bootstrap)
	cmd.Env = environment()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer killed.Stop()
	errs := bufio.NewReader(stderr)
	if line, err := errs.ReadString('\n'); err != nil || !strings.Contains(line, "on topic pgbroker-doctor-") {
		t.Fatalf("%q, %v", line, err)
	}
	if out := c.ok("", "topic", "list", "-o", "name"); !strings.Contains(out, "topic/pgbroker-doctor-") {
		t.Errorf("topics during the test: %s", out)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(errs) // to its end
	_ = cmd.Wait()              // its code is looked at
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d after an interrupt\n%s", code, rest)
	}
	c.want("NAME PARTITIONS REPLICAS\norders 1 1", "topic", "list")
	if got := consumeOne(t, n.bootstrap, "orders"); !bytes.Equal(got.Value, []byte("mine")) {
		t.Errorf("the other topic has %q", got.Value)
	}
}
