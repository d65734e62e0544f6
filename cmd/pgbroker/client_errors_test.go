package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestUnreachableBrokers(t *testing.T) {
	one, two := freePort(t), freePort(t)
	start := time.Now()
	wantRun(t, runCmd(t, one+","+two, "", "topic", "list"), exitUnreachable, one, two, "connection refused", "-b")
	wantRun(t, runCmd(t, one, "x\n", "produce", "orders"), exitUnreachable, "connection refused")
	wantRun(t, runCmd(t, one, "", "consume", "orders"), exitUnreachable, "connection refused")
	wantRun(t, runCmd(t, one, "", "group", "lag", "g"), exitUnreachable, "connection refused")
	wantRun(t, runCmd(t, one, "", "status"), exitUnreachable, "connection refused")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("refused connections took %s to report", took)
	}
	wantRun(t, runCmd(t, silentListener(t), "", "topic", "list", "--timeout", "300ms"), exitUnreachable, "no answer", "300ms")

	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	wantRun(t, runCmd(t, web.Listener.Addr().String(), "", "topic", "list", "--timeout", "500ms"), exitUnreachable)

	// A seed that is down does not matter while another one answers.
	mustRun(t, one+","+newCluster(t), "", "topic", "list")
}

// TestAdvertisedAddressDoesNotAnswer is the most common mistake with Kafka's listeners.
func TestAdvertisedAddressDoesNotAnswer(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	dialled, elsewhere := cluster.ListenAddrs()[0], freePort(t)
	host, port, _ := net.SplitHostPort(elsewhere)
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		broker := kmsg.NewMetadataResponseBroker()
		broker.NodeID, broker.Host = 7, host
		fmt.Sscan(port, &broker.Port)
		resp.Brokers, resp.ControllerID = append(resp.Brokers, broker), 7
		topic := kmsg.NewMetadataResponseTopic()
		name := "orders"
		topic.Topic, topic.TopicID = &name, [16]byte{1}
		partition := kmsg.NewMetadataResponseTopicPartition()
		partition.Leader, partition.Replicas, partition.ISR = 7, []int32{7}, []int32{7}
		topic.Partitions = append(topic.Partitions, partition)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	for _, args := range [][]string{{"consume", "orders"}, {"produce", "orders"}, {"topic", "describe", "orders"}, {"topic", "create", "x"}} {
		start := time.Now()
		r := runCmd(t, dialled, "x\n", args...)
		wantRun(t, r, exitUnreachable, "broker 7", dialled, elsewhere, "advertised.listeners", "connection refused")
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%v took %s to find out", args, took)
		}
	}
}

func TestAuthentication(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "admin", "right"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	addr := cluster.ListenAddrs()[0]
	mustRun(t, addr, "", "topic", "list", "-X", "user=admin", "-X", "pass=right")
	t.Setenv("PGBROKER_SASL_USER", "admin")
	t.Setenv("PGBROKER_SASL_MECHANISM", "scram-sha-256")
	mustRun(t, addr, "", "topic", "list", "-X", "pass=right")

	// This fake hangs up on wrong credentials, as a broker before Kafka 1.0 does.
	wantRun(t, runCmd(t, addr, "", "topic", "list", "-X", "pass=wrong"), exitUnreachable, "closes the connection", "-X user")
	// Kafka since 1.0 says why (KIP-152).
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return resp, nil, true
	})
	for _, args := range [][]string{{"topic", "list"}, {"consume", "orders"}, {"produce", "orders"}} {
		r := runCmd(t, addr, "x\n", append(args, "-X", "pass=wrong")...)
		wantRun(t, r, exitUnauthorized, "credentials", "SASL_AUTHENTICATION_FAILED", "-X user")
	}
}

func TestAuthorisationOfOneTopic(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	refused := map[string]bool{"secret": true, "hidden": true}
	cluster.ControlKey(int16(kmsg.CreateTopics), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, rt := range kreq.(*kmsg.CreateTopicsRequest).Topics {
			a := kmsg.NewCreateTopicsResponseTopic()
			a.Topic = rt.Topic
			if refused[rt.Topic] {
				a.ErrorCode = kerr.TopicAuthorizationFailed.Code
			}
			resp.Topics = append(resp.Topics, a)
		}
		return resp, nil, true
	})
	addr := cluster.ListenAddrs()[0]
	wantRun(t, runCmd(t, addr, "", "topic", "create", "secret", "hidden"), exitUnauthorized, "secret", "hidden", "TOPIC_AUTHORIZATION_FAILED")
	wantRun(t, runCmd(t, addr, "", "topic", "create", "open", "secret"), exitUnauthorized, "secret")
	mustRun(t, addr, "", "topic", "create", "open")
}

func TestOutputFromTheEnvironment(t *testing.T) {
	addr := newCluster(t, kfake.SeedTopics(1, "orders"))
	t.Setenv("PGBROKER_OUTPUT", "name")
	if got := mustRun(t, addr, "", "topic", "list"); got != "topic/orders\n" {
		t.Errorf("with PGBROKER_OUTPUT=name it prints %q", got)
	}
	if got := mustRun(t, addr, "", "topic", "list", "-o", "jsonl"); !strings.HasPrefix(got, "{") {
		t.Errorf("-o does not win over PGBROKER_OUTPUT: %q", got)
	}
	// The environment chooses no format of records.
	mustRun(t, addr, "one\n", "produce", "orders")
	if got := mustRun(t, addr, "", "consume", "orders"); got != "one\n" {
		t.Errorf("consume with PGBROKER_OUTPUT=name prints %q", got)
	}
	t.Setenv("PGBROKER_OUTPUT", "xml")
	wantRun(t, runCmd(t, addr, "", "topic", "list"), exitUsage, "xml")
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"kafka"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := newCluster(t, kfake.SeedTopics(1, "orders"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}))
	mustRun(t, addr, "", "topic", "list", "-X", "tls.ca="+ca)
	mustRun(t, addr, "", "topic", "list", "-X", "tls.ca="+ca, "-X", "tls.server_name=kafka")
	mustRun(t, addr, "", "topic", "list", "-X", "tls.insecure_skip_verify=true")
	wantRun(t, runCmd(t, addr, "", "topic", "list", "-X", "tls.enabled=true"), exitUnreachable, "certificate")
	wantRun(t, runCmd(t, addr, "", "topic", "list", "-X", "tls.ca="+ca, "-X", "tls.server_name=other"), exitUnreachable, "certificate", "other")
	wantRun(t, runCmd(t, addr, "", "topic", "list", "--timeout", "2s"), exitUnreachable, "TLS")
	t.Setenv("PGBROKER_TLS_CA", ca)
	mustRun(t, addr, "", "topic", "list")
}
