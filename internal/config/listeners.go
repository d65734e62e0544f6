package config

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Listener is one address that clients connect to.
type Listener struct {
	Name     string // as in listeners, in upper case
	Protocol string // PLAINTEXT
	Host     string // to bind; empty: all addresses
	Port     int    // 0: chosen when it is bound

	AdvertisedHost string
	AdvertisedPort int // 0: the port that was bound
}

// endpoint is one item of listeners or advertised.listeners.
type endpoint struct {
	name, host string
	port       int
}

// The two properties that list endpoints.
const (
	listenKey    = "listeners"
	advertiseKey = "advertised.listeners"
)

// Listeners returns the listeners of clients, in the order of `listeners`. Those of controllers are left out. It refuses
// an address that no client could reach, and protocols that do not exist yet. The error names the property and the item.
func (c *Config) Listeners() ([]Listener, error) {
	protocols, err := c.protocols()
	if err != nil {
		return nil, err
	}
	bound, err := c.endpoints(listenKey)
	if err != nil {
		return nil, err
	}
	advertised, err := c.endpoints(advertiseKey)
	if err != nil {
		return nil, err
	}
	for _, a := range advertised {
		if !slices.ContainsFunc(bound, func(e endpoint) bool { return e.name == a.name }) {
			return nil, fmt.Errorf("%s=%s: there is no listener %s in %s", advertiseKey, a, a.name, listenKey)
		}
	}
	var all []Listener
	for i, e := range bound {
		for _, other := range bound[:i] {
			if e.port != 0 && e.port == other.port && e.host == other.host {
				return nil, fmt.Errorf("%s=%s: %s has the same address", listenKey, e, other.name)
			}
		}
		l := Listener{Name: e.name, Protocol: protocols[e.name], Host: e.host, Port: e.port}
		if err := l.checkProtocol(); err != nil {
			return nil, err
		}
		if err := l.advertise(advertised); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s=%s: no listener for clients", listenKey, c.String(listenKey))
	}
	return all, nil
}

func (l *Listener) checkProtocol() error {
	switch l.Protocol {
	case "PLAINTEXT":
		return nil
	case "":
		return fmt.Errorf("%s: listener %s has no protocol; add %s:PLAINTEXT to listener.security.protocol.map", listenKey, l.Name, l.Name)
	default:
		return fmt.Errorf("%s: listener %s wants %s, which is not available yet; only PLAINTEXT is", listenKey, l.Name, l.Protocol)
	}
}

// advertise sets the address that clients are told: the listener's item of advertised.listeners, else its own.
func (l *Listener) advertise(advertised []endpoint) error {
	key, told := listenKey, endpoint{l.Name, l.Host, l.Port}
	for _, a := range advertised {
		if a.name == l.Name {
			key, told = advertiseKey, a
		}
	}
	if !routable(told.host) {
		return fmt.Errorf("%s=%s: clients cannot connect to this address; set %s=%s://<host that clients reach>:%d",
			key, told, advertiseKey, l.Name, told.port)
	}
	if told.port == 0 && l.Port != 0 {
		return fmt.Errorf("%s=%s: the port must be from 1 to 65535", key, told)
	}
	l.AdvertisedHost, l.AdvertisedPort = told.host, told.port
	return nil
}

// routable tells whether a host can be connected to from elsewhere, as far as its text shows.
func routable(host string) bool {
	if host == "" || host == "*" {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err != nil || !addr.IsUnspecified()
}

// protocols reads listener.security.protocol.map.
func (c *Config) protocols() (map[string]string, error) {
	const key = "listener.security.protocol.map"
	protocols := map[string]string{}
	for _, item := range c.List(key) {
		if strings.TrimSpace(item) == "" {
			continue
		}
		name, protocol, ok := strings.Cut(item, ":")
		name, protocol = strings.ToUpper(strings.TrimSpace(name)), strings.ToUpper(strings.TrimSpace(protocol))
		if !ok || name == "" {
			return nil, fmt.Errorf("%s=%s: must be NAME:PROTOCOL", key, item)
		}
		if !slices.Contains([]string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}, protocol) {
			return nil, fmt.Errorf("%s=%s: the protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", key, item)
		}
		if _, twice := protocols[name]; twice {
			return nil, fmt.Errorf("%s=%s: %s is given twice", key, item, name)
		}
		protocols[name] = protocol
	}
	return protocols, nil
}

// endpoints reads listeners or advertised.listeners without those of controllers.
func (c *Config) endpoints(key string) ([]endpoint, error) {
	controllers := c.List("controller.listener.names")
	var all []endpoint
	for _, item := range c.List(key) {
		e, err := parseEndpoint(item)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", key, item, err)
		}
		if slices.ContainsFunc(controllers, func(name string) bool { return strings.EqualFold(name, e.name) }) {
			continue
		}
		if slices.ContainsFunc(all, func(other endpoint) bool { return other.name == e.name }) {
			return nil, fmt.Errorf("%s=%s: %s is given twice", key, item, e.name)
		}
		all = append(all, e)
	}
	return all, nil
}

var (
	listenerName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	hostName     = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)
)

// parseEndpoint reads NAME://host:port, NAME://[v6]:port or NAME://:port.
func parseEndpoint(item string) (endpoint, error) {
	errForm := errors.New("must be NAME://host:port")
	name, address, ok := strings.Cut(item, "://")
	if !ok || !listenerName.MatchString(name) {
		return endpoint{}, errForm
	}
	colon := strings.LastIndexByte(address, ':')
	if colon < 0 {
		return endpoint{}, errForm
	}
	host := address[:colon]
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		host = strings.TrimSuffix(inner, "]")
		if addr, err := netip.ParseAddr(host); err != nil || !addr.Is6() || len(host) == len(inner) {
			return endpoint{}, fmt.Errorf("%s is not an IPv6 address", address[:colon])
		}
	} else if !hostName.MatchString(host) {
		return endpoint{}, fmt.Errorf("%q is not a host; an IPv6 address stands in [ ]", host)
	}
	port, err := strconv.Atoi(address[colon+1:])
	if err != nil || port < 0 || port > 65535 {
		return endpoint{}, errors.New("the port must be from 0 to 65535")
	}
	return endpoint{strings.ToUpper(name), host, port}, nil
}

// String is the notation that parseEndpoint reads.
func (e endpoint) String() string {
	host := e.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s://%s:%d", e.name, host, e.port)
}

// deriveListeners does what Kafka's image does when the environment gives only advertised.listeners: it listens on their
// ports at all addresses.
func (c *Config) deriveListeners() {
	advertised, ok := c.set[advertiseKey]
	if _, given := c.set[listenKey]; given || !ok || advertised.source != Env {
		return
	}
	var items []string
	for item := range strings.SplitSeq(advertised.value, ",") {
		e, err := parseEndpoint(item)
		if err != nil {
			return // Listeners says it better
		}
		items = append(items, fmt.Sprintf("%s://0.0.0.0:%d", e.name, e.port))
	}
	c.set[listenKey] = setting{strings.Join(items, ","), Env}
}
