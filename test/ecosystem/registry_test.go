package ecosystem

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgbroker/pgbroker/test/harness"
)

// registry runs the Apicurio schema registry with its schemas in topics of the broker, and waits until it answers.
func registry(t *testing.T, b *harness.Broker, libs string) worker {
	t.Helper()
	port := strconv.Itoa(harness.FreePort(t))
	w := worker{url: "http://127.0.0.1:" + port}
	w.program = jvm(t, libs+"/apicurio-registry-app-3.0.9-runner.jar", "io.quarkus.runner.GeneratedMain", []string{"QUARKUS_HTTP_HOST=127.0.0.1", "QUARKUS_HTTP_PORT=" + port,
		"QUARKUS_MANAGEMENT_HOST=127.0.0.1", "QUARKUS_MANAGEMENT_PORT=" + strconv.Itoa(harness.FreePort(t)),
		"APICURIO_STORAGE_KIND=kafkasql", "APICURIO_KAFKASQL_CONSUMER_POLL_TIMEOUT=200", "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS=" + b.Bootstrap()})
	w.answers(t, "/apis/ccompat/v7/subjects")
	return w
}

// register adds a schema of so many fields to a subject and returns its id.
func (w worker) register(t *testing.T, subject string, fields int) (id int, err error) {
	t.Helper()
	answer, err := w.call(t, http.MethodPost, "/apis/ccompat/v7/subjects/"+subject+"/versions", body(t, map[string]string{"schema": schema(fields, `"string","default":""`)}))
	if err != nil {
		return 0, err
	}
	var registered struct{ ID int }
	if err := json.Unmarshal(answer, &registered); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	return registered.ID, nil
}

// schema is one of Avro, of a record with so many fields of a type with a default.
func schema(fields int, kind string) string {
	var list []string
	for i := range fields {
		list = append(list, fmt.Sprintf(`{"name":"f%d","type":%s}`, i, kind))
	}
	return `{"type":"record","name":"Order","fields":[` + strings.Join(list, ",") + `]}`
}

func body(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRegistry: the Apicurio schema registry keeps its schemas in topics of the broker. What it registered is there under the
// same ids after the broker was killed, and in a registry that starts after the first was killed and reads all from the
// topics; both refuse a schema that breaks the rule of its subject.
func TestRegistry(t *testing.T) {
	n, kills := size(t, 6, 60), size(t, 1, 6)
	_, libs, _ := strings.Cut(strings.TrimSuffix(script(t, "java/prepare", "registry"), "/*"), ":")
	b := start(t)
	w := registry(t, b, libs)
	ids := map[int]string{}
	add := func(fields int) {
		var id int
		eventually(t, time.Minute, fmt.Sprintf("schema %d is registered", fields), func() bool {
			var err error
			if id, err = w.register(t, "orders", fields); err != nil {
				t.Logf("schema %d: %v", fields, err)
			}
			return err == nil
		})
		if before, ok := ids[id]; ok {
			t.Errorf("schema %d has id %d as %s", fields, id, before)
		}
		ids[id] = schema(fields, `"string","default":""`)
	}
	check := func() {
		t.Helper()
		for id, want := range ids {
			answer, err := w.call(t, http.MethodGet, "/apis/ccompat/v7/schemas/ids/"+strconv.Itoa(id), "")
			var got struct{ Schema string }
			if err != nil || json.Unmarshal(answer, &got) != nil || got.Schema != want {
				t.Errorf("schema %d is %s (%v), want %s", id, answer, err, want)
			}
		}
		answer, err := w.call(t, http.MethodPost, "/apis/ccompat/v7/subjects/orders/versions", body(t, map[string]string{"schema": schema(1, `"long","default":0`)}))
		if err == nil || !strings.Contains(err.Error(), " 409 ") {
			t.Errorf("a schema that breaks the rule: %s, %v; want 409", answer, err)
		}
	}
	add(1)
	if _, err := w.call(t, http.MethodPut, "/apis/ccompat/v7/config/orders", `{"compatibility":"BACKWARD"}`); err != nil {
		t.Fatal(err)
	}
	for life := range kills + 1 {
		for i := range n / (kills + 1) {
			add(2 + life*(n/(kills+1)) + i)
		}
		if life < kills {
			b.Kill()
			b.MustStart()
		}
	}
	check()
	w.kill()
	w = registry(t, b, libs)
	check()
	add(1000)
	t.Logf("%d schemas, %d kills of the broker, one of the registry", len(ids), kills)
}
