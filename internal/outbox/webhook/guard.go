package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/hapaxpay/hapax/internal/outbox"
)

// Limits of looking an address up and connecting to it.
const (
	maxAddresses   = 8 // of one name that are tried
	connectWithin  = 3 * time.Second
	resolveWithin  = 3 * time.Second
	maxURL         = 2048
	refusedAddress = "it leads to an address that is not public"
)

// ErrTarget says that nothing is sent to an address, whatever answers there. What it says can be shown to the merchant.
var ErrTarget = errors.New("not a target for webhooks")

// Resolver finds the addresses of a name; net.DefaultResolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Guard judges where webhooks may go: when an endpoint is created, and at the dial of each try, since a name can lead elsewhere by
// then (PROTOCOL V5).
type Guard struct {
	// AllowPrivate takes any address, and http: for development and tests.
	AllowPrivate bool
	Resolver     Resolver // nil: the system's
}

func (g Guard) resolver() Resolver {
	if g.Resolver == nil {
		return net.DefaultResolver
	}
	return g.Resolver
}

func refuse(why string) error { return fmt.Errorf("%w: %s", ErrTarget, why) }

// Check judges the form of an address, and what its name leads to now. A name that leads nowhere passes: it may lead somewhere
// later, and each try judges it again. It fails with ErrTarget.
func (g Guard) Check(ctx context.Context, text string) error {
	u, err := g.form(text)
	if err != nil || g.AllowPrivate {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	found, err := g.resolver().LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil
	}
	for _, a := range found {
		if !Public(a) {
			return refuse(refusedAddress)
		}
	}
	return nil
}

// form judges what needs no network.
func (g Guard) form(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		return nil, refuse("it is longer than 2048 bytes")
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return nil, refuse("it is not an absolute https address")
	case u.Scheme != "https" && !(g.AllowPrivate && u.Scheme == "http"):
		return nil, refuse("it is not an https address")
	case u.User != nil:
		return nil, refuse("it holds a user or password; webhooks are signed instead")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return nil, refuse("it has a fragment, which is never sent")
	case strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) >= 0:
		return nil, refuse("it holds something other than visible ASCII characters; write a name in its xn-- form")
	}
	return u, g.host(u)
}

// host refuses what is no name and no plain address: other writings of a number are read differently by different programs.
func (g Guard) host(u *url.URL) error {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" || !g.AllowPrivate && !Public(a) {
			return refuse(refusedAddress)
		}
		return nil
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	switch {
	case last == "" || strings.ContainsAny(host, ":%/?@[]"):
		return refuse("its host is not a name")
	case numeric(last):
		return refuse("its host is a number in a form that is not taken")
	case !g.AllowPrivate && (last == "localhost" || last == "internal" || last == "local" || last == host):
		return refuse("its host is not a public name")
	}
	return nil
}

// numeric: a host whose last part is a number is an address in some writing (0x7f.1, 2130706433, 017700000001).
func numeric(label string) bool {
	digits := strings.IndexFunc(label, func(r rune) bool { return r < '0' || r > '9' }) < 0
	hex := strings.HasPrefix(label, "0x") && strings.IndexFunc(label[2:], func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'f')
	}) < 0
	return digits || hex
}

// special are addresses that are not of the public internet (the registries of IANA for special purposes, RFC 6890).
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
	"192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
)

var (
	global = netip.MustParsePrefix("2000::/3")     // outside it nothing of IPv6 is public
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // holds an address of IPv4 in its last four bytes
)

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for n, t := range texts {
		all[n] = netip.MustParsePrefix(t)
	}
	return all
}

// Public says whether an address is one of the public internet. What holds another address is judged by that one, and old
// forms of tunnels (6to4, Teredo) are none.
func Public(a netip.Addr) bool {
	if a.Zone() != "" || !a.IsValid() {
		return false
	}
	a = a.Unmap()
	if nat64.Contains(a) {
		raw := a.As16()
		a = netip.AddrFrom4([4]byte(raw[12:]))
	}
	if a.Is6() && !global.Contains(a) {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// control is asked for the very address to which a connection is about to be made.
func (g Guard) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !g.AllowPrivate && !Public(to.Addr()) {
		return refuse(refusedAddress)
	}
	return nil
}

// dial connects to a host and port. Every address of the name is judged again, right before the connection is made.
func (g Guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	found, err := g.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: connectWithin, Control: g.control}
	var last error
	for _, a := range found[:min(len(found), maxAddresses)] {
		conn, err := d.DialContext(ctx, network, net.JoinHostPort(a.String(), port))
		if err == nil && outbox.Over(ctx) {
			return nil, errors.Join(outbox.ErrLate, conn.Close())
		}
		if err == nil {
			return conn, nil
		}
		last = err
	}
	if last == nil {
		last = errors.New("the name has no address")
	}
	return nil, last
}

func (g Guard) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	found, err := g.resolver().LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, errors.New("the name could not be resolved")
	}
	for n, a := range found {
		found[n] = a.Unmap()
	}
	return found, nil
}
