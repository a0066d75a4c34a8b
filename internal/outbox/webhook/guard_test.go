package webhook

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// names is a resolver of the tests' own.
type names map[string][]string

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	found, ok := n[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	var all []netip.Addr
	for _, text := range found {
		all = append(all, netip.MustParseAddr(text))
	}
	return all, nil
}

const public = "93.184.216.34"

// insides are addresses that lead to where webhooks have no business, in every form in which one can be written.
var insides = []string{
	"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.254", "127.0.0.1", "127.8.8.8", "169.254.169.254", "169.254.170.2",
	"172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7",
	"203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
	"::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "2001::1", "2001:10::1", "3fff::1", "5f00::1", "100::1",
	"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1",
	"64:ff9b::a9fe:a9fe", "64:ff9b:1::8.8.8.8", "2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1",
}

func TestPublicAddresses(t *testing.T) {
	for _, text := range insides {
		if Public(netip.MustParseAddr(text)) {
			t.Errorf("%s counts as public", text)
		}
	}
	for _, text := range []string{public, "8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "192.0.1.1", "223.255.255.255",
		"2606:2800:220:1:248:1893:25c8:1946", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"} {
		if !Public(netip.MustParseAddr(text)) {
			t.Errorf("%s does not count as public", text)
		}
	}
	if Public(netip.Addr{}) || Public(netip.MustParseAddr("fe80::1%eth0")) {
		t.Error("no address, or one with a zone, counts as public")
	}
}

// Every address inside is refused as it is written and behind a name, at creation and at the dial.
func TestTargetsInsideAreRefused(t *testing.T) {
	guard := Guard{Resolver: names{}}
	for _, inside := range insides {
		host := inside
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		if err := guard.Check(t.Context(), "https://"+host+"/hook"); !errors.Is(err, ErrTarget) {
			t.Errorf("%s: %v", inside, err)
		}
		for _, all := range [][]string{{inside}, {public, inside}} {
			g := Guard{Resolver: names{"shop.example": all}}
			if err := g.Check(t.Context(), "https://shop.example/"); !errors.Is(err, ErrTarget) || strings.Contains(err.Error(), inside) {
				t.Errorf("a name for %v: %v", all, err)
			}
		}
		g := Guard{Resolver: names{"shop.example": {inside}}}
		if conn, err := g.dial(t.Context(), "tcp", "shop.example:443"); !errors.Is(err, ErrTarget) || conn != nil {
			t.Errorf("a connection to %s: %v", inside, err)
		}
	}
}

func TestFormsOfTargets(t *testing.T) {
	guard := Guard{Resolver: names{"shop.example": {public}}}
	for _, text := range []string{
		"", "shop.example", "//shop.example/", "http://shop.example/", "ftp://shop.example/", "https:shop.example", "https://", "https:///x", "https://:443/",
		"https://user@shop.example/", "https://user:secret@shop.example/", "https://shop.example/#part", "https://shop.example/#", "https://shop.example\\@10.0.0.1/",
		"https://shop.example/ x", "https://shop.example/\n", "https://sh\u00f6p.example/", "https://shop.ex\u0430mple/", "https://2130706433/", "https://0x7f.1/", "https://0x7f000001/",
		"https://017700000001/", "https://127.1/", "https://127.0.0.1.:443/", "https://0177.0.0.1/", "https://1.1.1.1.1/", "https://10.1/", "https://localhost/", "https://localhost.:8443/",
		"https://a.localhost/", "https://intranet/", "https://metadata.google.internal/", "https://printer.local/", "https://[fe80::1%25eth0]/", "https://[::1]:443/",
		"https://shop.example:x/", "https://%6c%6fcalhost/", "https://shop.example/" + strings.Repeat("x", 2048),
	} {
		if err := guard.Check(t.Context(), text); !errors.Is(err, ErrTarget) {
			t.Errorf("%q is taken: %v", text, err)
		}
	}
	for _, text := range []string{"https://shop.example", "https://shop.example:8443/hooks?to=a%20b", "HTTPS://Shop.Example/", "https://8.8.8.8/", "https://[2a00:1450::1]/",
		"https://not-there-yet.example/", "https://xn--shp-sna.example/"} {
		if err := guard.Check(t.Context(), text); err != nil {
			t.Errorf("%q is refused: %v", text, err)
		}
	}
	lax := Guard{AllowPrivate: true}
	for _, text := range []string{"http://127.0.0.1:3000/", "https://localhost/", "http://intranet/"} {
		if err := lax.Check(t.Context(), text); err != nil {
			t.Errorf("where it is allowed, %q is refused: %v", text, err)
		}
	}
	for _, text := range []string{"http://user@127.0.0.1/", "ftp://127.0.0.1/", "http://127.1/", "http://127.0.0.1/#x"} {
		if err := lax.Check(t.Context(), text); !errors.Is(err, ErrTarget) {
			t.Errorf("where private targets are allowed, %q is taken: %v", text, err)
		}
	}
}

// The client reaches a name only through the guard, and no proxy of the environment.
func TestTheClientHasNoOtherWay(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	s := New(Config{Guard: Guard{Resolver: names{"shop.example": {"127.0.0.1"}}}})
	transport := s.client.Transport.(*http.Transport)
	if transport.Proxy != nil || !transport.DisableKeepAlives || transport.DialTLSContext != nil || s.client.Jar != nil {
		t.Errorf("%+v", transport)
	}
	if _, err := s.client.Get("https://shop.example/"); !errors.Is(err, ErrTarget) {
		t.Errorf("%v", err)
	}
}
