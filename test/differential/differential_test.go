package differential

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/internal/embedpg/pgtest"
	"github.com/pgbroker/pgbroker/test/harness"
)

var (
	recordFlag = flag.Bool("record", false, "record the golden transcripts on a real Kafka")
	tenthFlag  = flag.Bool("tenth", false, "record a random tenth of the scripts on a real Kafka and compare")
	seedFlag   = flag.Uint64("seed", 0, "of -tenth; 0 a random one")
	oursFlag   = flag.Bool("ours", false, "write what we answer in the cases of docs/deviations.md")
	dumpFlag   = flag.String("dump", "", "write what we answer to this folder")
	onlyFlag   = flag.String("only", "", "run only the scripts that match this regular expression")
)

func TestMain(m *testing.M) {
	flag.Parse()
	harness.Main(m)
}

const kafkaVersion = "4.4.0"

// header is the first line of a golden file.
func header(sum string) string {
	return fmt.Sprintf("Recorded from Apache Kafka %s by make golden. SHA-256 of kafka_2.13-%[1]s.jar: %s", kafkaVersion, sum)
}

func selected(t *testing.T) (scripts []*script) {
	only := regexp.MustCompile(*onlyFlag)
	for _, s := range loadScripts(t) {
		if only.MatchString(s.name) {
			scripts = append(scripts, s)
		}
	}
	return scripts
}

// belongs drops the transcripts of other scripts.
func belongs(all transcripts, scripts []*script) transcripts {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(name, _ string) bool {
		return !slices.ContainsFunc(scripts, func(s *script) bool { return strings.HasPrefix(name, s.name+"/") })
	})
	return out
}

// TestDifferential compares what we answer with what Kafka answered.
func TestDifferential(t *testing.T) {
	if *recordFlag || *tenthFlag {
		t.Skip("recording")
	}
	scripts := selected(t)
	golden, _, err := loadTranscripts("testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	golden = belongs(golden, scripts)
	r := newRun(startOurs(t))
	start := time.Now()
	if err := r.all(t.Context(), scripts); err != nil {
		t.Fatal(err)
	}
	slowest := slices.MaxFunc(slices.Collect(maps.Keys(r.took)), func(a, b string) int { return cmp.Compare(r.took[a], r.took[b]) })
	t.Logf("%d cases in %s; the slowest script is %s, %s", len(r.transcripts), time.Since(start).Round(time.Millisecond), slowest, r.took[slowest].Round(time.Millisecond))
	if *dumpFlag != "" {
		if err := transcripts(r.transcripts).save(*dumpFlag, "what pgbroker answers"); err != nil {
			t.Fatal(err)
		}
	}
	rules, err := readRules("../../docs/deviations.md")
	if err != nil {
		t.Fatal(err)
	}
	deviations, err := readDeviations("../../docs/deviations.md")
	if err != nil {
		t.Fatal(err)
	}
	v := judge(golden, r.transcripts, rules, deviations)
	v.report(t, *onlyFlag == "")
	compareOurs(t, scripts, v.deviating)
	if *onlyFlag == "" {
		r.coverage(t)
	}
}

// compareOurs holds what we answer where that is on purpose not what Kafka answers.
func compareOurs(t *testing.T, scripts []*script, deviating transcripts) {
	t.Helper()
	held, _, err := loadTranscripts("testdata/ours")
	if err != nil {
		t.Fatal(err)
	}
	if *oursFlag {
		maps.DeleteFunc(held, func(name, _ string) bool { return len(belongs(transcripts{name: ""}, scripts)) > 0 })
		maps.Copy(held, deviating)
		if err := held.save("testdata/ours", "What pgbroker answers where docs/deviations.md says why. Written by go test ./test/differential -ours"); err != nil {
			t.Fatal(err)
		}
		return
	}
	held = belongs(held, scripts)
	for _, name := range slices.Sorted(maps.Keys(deviating)) {
		if want, ok := held[name]; !ok {
			t.Errorf("%s deviates, and testdata/ours does not hold how (go test ./test/differential -ours)", name)
		} else if want != deviating[name] {
			t.Errorf("%s deviates in another way than it did: %s", name, strings.Replace(difference(want, deviating[name]), "Kafka", "held ", 1))
		}
	}
	for name := range held {
		if _, ok := deviating[name]; !ok {
			t.Errorf("testdata/ours holds %s, which does not deviate any more (go test ./test/differential -ours)", name)
		}
	}
}

// verdict is the outcome of a comparison.
type verdict struct {
	same       int
	ruled      int // the same but for what a rule says
	rules      []*rule
	deviating  transcripts
	deviations reasons
	problems   []string
}

func judge(golden, ours transcripts, rules []*rule, deviations reasons) *verdict {
	v := &verdict{rules: rules, deviating: transcripts{}, deviations: deviations}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		want, ok := golden[name]
		if !ok {
			v.problems = append(v.problems, name+": no golden transcript; make golden")
			continue
		}
		if want == ours[name] {
			v.same++
			continue
		}
		if apply(rules, want, ours[name]) == ours[name] {
			v.ruled++
		} else if d := deviations.find(name); d != nil {
			d.used = true
			v.deviating[name] = ours[name]
		} else {
			v.problems = append(v.problems, fmt.Sprintf("%s: %s", name, difference(want, ours[name])))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(golden)) {
		if _, ok := ours[name]; !ok {
			v.problems = append(v.problems, name+": a golden transcript without a case; make golden")
		}
	}
	return v
}

// report lists the reasons with their cases, and fails for what has none; complete is whether all scripts ran.
func (v *verdict) report(t *testing.T, complete bool) {
	t.Helper()
	for _, r := range v.deviations {
		if r.used {
			t.Logf("deviation %s: %s", r.pattern, r.why)
		} else if complete {
			t.Errorf("deviation %s: no case needs it any more: %s", r.pattern, r.why)
		}
	}
	for _, r := range v.rules {
		if r.used > 0 {
			t.Logf("%q instead of %q in %d lines: %s", r.to, r.from, r.used, r.why)
		} else if complete {
			t.Errorf("%q instead of %q: no case needs it any more: %s", r.to, r.from, r.why)
		}
	}
	for _, p := range v.problems {
		t.Errorf("%s", p)
	}
	t.Logf("%d cases: %d same, %d the same but for a rule, %d deviations, %d unexplained", v.same+v.ruled+len(v.deviating)+len(v.problems),
		v.same, v.ruled, len(v.deviating), len(v.problems))
}

func startOurs(t *testing.T) string {
	b := harness.NewBroker(t, harness.BrokerOptions{Postgres: pgtest.URL(t), Set: []string{"group.initial.rebalance.delay.ms=0"}})
	b.MustStart()
	return b.Bootstrap()
}

// TestRecordGolden is make golden.
func TestRecordGolden(t *testing.T) {
	if !*recordFlag {
		t.Skip("-record")
	}
	scripts := selected(t)
	address, sum := startKafka(t)
	r := newRun(address)
	if err := r.all(t.Context(), scripts); err != nil {
		t.Fatal(err)
	}
	golden, _, err := loadTranscripts("testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	if *onlyFlag == "" {
		golden = transcripts{}
	}
	maps.DeleteFunc(golden, func(name, _ string) bool { return len(belongs(transcripts{name: ""}, scripts)) > 0 })
	maps.Copy(golden, r.transcripts)
	if err := golden.save("testdata/golden", header(sum)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d cases recorded", len(r.transcripts))
}

// TestTenth says whether a real Kafka still answers a random tenth of the scripts as it did.
func TestTenth(t *testing.T) {
	if !*tenthFlag {
		t.Skip("-tenth")
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64N(1_000_000)
	}
	random := rand.New(rand.NewPCG(seed, 1))
	scripts := selected(t)
	random.Shuffle(len(scripts), func(i, j int) { scripts[i], scripts[j] = scripts[j], scripts[i] })
	if *onlyFlag == "" {
		scripts = scripts[:(len(scripts)+9)/10]
	}
	slices.SortFunc(scripts, func(a, b *script) int { return strings.Compare(a.name, b.name) })
	golden, headers, err := loadTranscripts("testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	address, sum := startKafka(t)
	for file, h := range headers {
		if h != header(sum) {
			t.Errorf("%s: %s; the jar here has %s", file, h, sum)
		}
	}
	r := newRun(address)
	if err := r.all(t.Context(), scripts); err != nil {
		t.Fatal(err)
	}
	v := judge(belongs(golden, scripts), r.transcripts, nil, nil)
	for _, p := range v.problems {
		t.Errorf("%s", strings.Replace(p, "ours:", "now: ", 1))
	}
	t.Logf("seed %d: %d cases of %d scripts on a real Kafka: %d same", seed, len(r.transcripts), len(scripts), v.same)
}

// startKafka runs Apache Kafka until the test ends. It returns its address and the checksum of its jar.
func startKafka(t *testing.T) (address, sum string) {
	for _, program := range []string{"java", "mvn"} {
		harness.Need(t, program)
	}
	jars, err := exec.Command("../compat/kafka/assemble").Output()
	if err != nil {
		t.Fatalf("Kafka's jars: %v", err)
	}
	if sum, err = jarSum(filepath.Join(strings.TrimSpace(string(jars)), "kafka_2.13-"+kafkaVersion+".jar")); err != nil {
		t.Fatal(err)
	}
	port := portPair(t)
	log, err := os.Create(filepath.Join(t.TempDir(), "kafka.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("../compat/kafka/serve", strconv.Itoa(port), filepath.Join(t.TempDir(), "kafka"))
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("Kafka's log (end):\n%s", harness.Tail(string(b), 20))
		}
	})
	address = "127.0.0.1:" + strconv.Itoa(port)
	r := newRun(address)
	if err := until(3*time.Minute, func() error {
		select {
		case <-ended:
			t.Fatal("Kafka has ended")
		default:
		}
		return r.ready()
	}); err != nil {
		t.Fatalf("Kafka does not start: %v", err)
	}
	return address, sum
}

// portPair is a port that is free together with the next one, which Kafka's controller takes. It lies below those that systems
// give to outgoing connections.
func portPair(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20_000 + rand.IntN(10_000)
		if free(port) && free(port+1) {
			return port
		}
	}
	t.Fatal("no two free ports side by side")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
