package config

import (
	"reflect"
	"testing"
)

func TestListeners(t *testing.T) {
	for name, c := range map[string]struct {
		env, set []string
		want     []Listener
	}{
		"default": {want: []Listener{{"PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092}}},
		"advertised per listener": {
			set: []string{"listeners=internal://0.0.0.0:29092,EXTERNAL://:9092", "advertised.listeners=INTERNAL://kafka:29092,EXTERNAL://localhost:9192",
				"listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:plaintext"},
			want: []Listener{{"INTERNAL", "PLAINTEXT", "0.0.0.0", 29092, "kafka", 29092}, {"EXTERNAL", "PLAINTEXT", "", 9092, "localhost", 9192}},
		},
		"own address where none is advertised": {
			set:  []string{"listeners=A://10.1.2.3:1,B://:2", "advertised.listeners=B://b:2", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"},
			want: []Listener{{"A", "PLAINTEXT", "10.1.2.3", 1, "10.1.2.3", 1}, {"B", "PLAINTEXT", "", 2, "b", 2}},
		},
		"controllers are left out": {
			env: []string{"KAFKA_LISTENERS=CONTROLLER://:9094,PLAINTEXT://:9092,", "KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://TC-0:32768,CONTROLLER://0.0.0.0:9094",
				"KAFKA_CONTROLLER_LISTENER_NAMES=controller"},
			want: []Listener{{"PLAINTEXT", "PLAINTEXT", "", 9092, "TC-0", 32768}},
		},
		"only advertised in the environment": {
			env:  []string{"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://box:19092", "KAFKA_LISTENERS="},
			want: []Listener{{"PLAINTEXT", "PLAINTEXT", "0.0.0.0", 19092, "box", 19092}},
		},
		"IPv6": {
			set:  []string{"listeners=PLAINTEXT://[::]:9092", "advertised.listeners=PLAINTEXT://[::1]:9092"},
			want: []Listener{{"PLAINTEXT", "PLAINTEXT", "::", 9092, "::1", 9092}},
		},
		"port chosen when bound": {
			set:  []string{"listeners=PLAINTEXT://127.0.0.1:0"},
			want: []Listener{{"PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0, "127.0.0.1", 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := mustLoad(t, "", c.env, c.set).Listeners()
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

func TestListenersRefused(t *testing.T) {
	const names = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
	for name, c := range map[string]struct {
		set  []string
		want string
	}{
		"all addresses, none advertised": {[]string{"listeners=PLAINTEXT://0.0.0.0:9092"}, "listeners=PLAINTEXT://0.0.0.0:9092: clients cannot connect to this address; set advertised.listeners=PLAINTEXT://<host that clients reach>:9092"},
		"no host, none advertised":       {[]string{"listeners=PLAINTEXT://:9092"}, "listeners=PLAINTEXT://:9092: clients cannot connect to this address; set advertised.listeners=PLAINTEXT://<host that clients reach>:9092"},
		"advertised 0.0.0.0":             {[]string{"advertised.listeners=PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners=PLAINTEXT://0.0.0.0:9092: clients cannot connect to this address; set advertised.listeners=PLAINTEXT://<host that clients reach>:9092"},
		"advertised ::":                  {[]string{"advertised.listeners=PLAINTEXT://[::]:9092"}, "advertised.listeners=PLAINTEXT://[::]:9092: clients cannot connect to this address; set advertised.listeners=PLAINTEXT://<host that clients reach>:9092"},
		"advertised mapped":              {[]string{"advertised.listeners=PLAINTEXT://[0:0::0]:9092"}, "advertised.listeners=PLAINTEXT://[0:0::0]:9092: clients cannot connect to this address; set advertised.listeners=PLAINTEXT://<host that clients reach>:9092"},
		"advertised without a host":      {[]string{"advertised.listeners=PLAINTEXT://:9092"}, "advertised.listeners=PLAINTEXT://:9092: clients cannot connect to this address; set advertised.listeners=PLAINTEXT://<host that clients reach>:9092"},
		"advertised port 0":              {[]string{"advertised.listeners=PLAINTEXT://a:0"}, "advertised.listeners=PLAINTEXT://a:0: the port must be from 1 to 65535"},
		"advertised stranger":            {[]string{"advertised.listeners=B://a:1"}, "advertised.listeners=B://a:1: there is no listener B in listeners"},
		"TLS":                            {[]string{"listeners=SSL://a:9093"}, "listeners: listener SSL wants SSL, which is not available yet; only PLAINTEXT is"},
		"SASL":                           {[]string{"listeners=A://a:1", "listener.security.protocol.map=A:SASL_SSL"}, "listeners: listener A wants SASL_SSL, which is not available yet; only PLAINTEXT is"},
		"no protocol":                    {[]string{"listeners=EXTERNAL://a:1"}, "listeners: listener EXTERNAL has no protocol; add EXTERNAL:PLAINTEXT to listener.security.protocol.map"},
		"bad protocol":                   {[]string{"listener.security.protocol.map=A:TLS"}, "listener.security.protocol.map=A:TLS: the protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"},
		"bad map":                        {[]string{"listener.security.protocol.map=A"}, "listener.security.protocol.map=A: must be NAME:PROTOCOL"},
		"map twice":                      {[]string{"listener.security.protocol.map=A:SSL,a:SSL"}, "listener.security.protocol.map=a:SSL: A is given twice"},
		"name twice":                     {[]string{"listeners=A://a:1,a://a:2", names}, "listeners=a://a:2: A is given twice"},
		"address twice":                  {[]string{"listeners=A://a:1,B://a:1", names}, "listeners=B://a:1: A has the same address"},
		"no form":                        {[]string{"listeners=localhost:9092"}, "listeners=localhost:9092: must be NAME://host:port"},
		"no port":                        {[]string{"listeners=PLAINTEXT://localhost"}, "listeners=PLAINTEXT://localhost: must be NAME://host:port"},
		"big port":                       {[]string{"listeners=PLAINTEXT://localhost:65536"}, "listeners=PLAINTEXT://localhost:65536: the port must be from 0 to 65535"},
		"a path":                         {[]string{"listeners=PLAINTEXT://a/b:1"}, `listeners=PLAINTEXT://a/b:1: "a/b" is not a host; an IPv6 address stands in [ ]`},
		"bare IPv6":                      {[]string{"listeners=PLAINTEXT://::1:1"}, `listeners=PLAINTEXT://::1:1: "::1" is not a host; an IPv6 address stands in [ ]`},
		"bad brackets":                   {[]string{"listeners=PLAINTEXT://[::1:1"}, "listeners=PLAINTEXT://[::1:1: [::1 is not an IPv6 address"},
		"only controllers":               {[]string{"controller.listener.names=PLAINTEXT"}, "listeners=PLAINTEXT://127.0.0.1:9092: no listener for clients"},
		"none":                           {[]string{"listeners="}, "listeners=: no listener for clients"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := load("", nil, c.set); message(err) != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}
