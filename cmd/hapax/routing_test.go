package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/hapaxpay/hapax/internal/id"
)

// shopWithAccount makes a tenant with one account, and gives the account.
func shopWithAccount(t *testing.T, name string) (account string) {
	t.Helper()
	hapax(t, exitGood, "merchant", "add", "--name", name)
	return hapaxReading(t, exitGood, `{"secret":"open-sesame"}`, "acquirer-account", "add", "--merchant", name, "--adapter", "sandbox",
		"--settings", `{"url":"http://127.0.0.1:1"}`).text("id")
}

func TestAccountsArePausedAndResumed(t *testing.T) {
	installed(t)
	account, theirs := shopWithAccount(t, "shop"), shopWithAccount(t, "other shop")
	paused := func() any {
		return hapax(t, exitGood, "acquirer-account", "list", "--merchant", "shop").list("acquirer_accounts")[0]["paused"]
	}
	for _, step := range []struct {
		verb string
		want bool
	}{{"pause", true}, {"pause", true}, {"resume", false}, {"resume", false}} {
		if o := hapax(t, exitGood, "acquirer-account", step.verb, "--merchant", "shop", account); o["paused"] != step.want || paused() != step.want {
			t.Fatalf("%s: %v, and the list says %v", step.verb, o, paused())
		}
	}
	if told := hapax(t, exitCouldNot, "acquirer-account", "pause", "--merchant", "shop", theirs).text("error"); !strings.Contains(told, "has no account") {
		t.Errorf("another tenant's account: %s", told)
	}
	hapax(t, exitCouldNot, "acquirer-account", "pause", "--merchant", "shop", "aa_1")
	if out, _ := plain(t, exitGood, "acquirer-account", "pause", "--merchant", "shop", account); !strings.Contains(out, "goes on") {
		t.Errorf("told: %s", out)
	}
}

func TestRoutingRules(t *testing.T) {
	installed(t)
	account, theirs := shopWithAccount(t, "shop"), shopWithAccount(t, "other shop")
	add := func(code int, args ...string) object {
		t.Helper()
		return hapax(t, code, append([]string{"routing", "add", "--merchant", "shop"}, args...)...)
	}
	if out, _ := plain(t, exitGood, "routing", "list", "--merchant", "shop"); !strings.Contains(out, "no rules") {
		t.Errorf("without rules: %s", out)
	}
	last := add(exitGood, "--account", account)
	first := add(exitGood, "--account", account, "--priority", "0", "--weight", strconv.Itoa(maxWeight), "--currency", "KZT", "--method-prefix", "pm_", "--flow", "hosted")
	rules := hapax(t, exitGood, "routing", "list", "--merchant", "shop").list("rules")
	if len(rules) != 2 || rules[0].text("id") != first.text("id") || rules[1].text("id") != last.text("id") {
		t.Fatalf("%v", rules)
	}
	if r := rules[0]; r["priority"] != 0.0 || r["weight"] != float64(maxWeight) || r["currency"] != "KZT" || r["method_prefix"] != "pm_" || r["flow"] != "hosted" || r["account"] != account {
		t.Errorf("%v", r)
	}
	if r := rules[1]; r["priority"] != 100.0 || r["weight"] != 1.0 || r["currency"] != "" || r["method_prefix"] != "" || r["flow"] != "" {
		t.Errorf("%v", r)
	}
	if out, _ := plain(t, exitGood, "routing", "list", "--merchant", "shop"); strings.Count(out, "any") != 3 || !strings.Contains(out, "KZT") {
		t.Errorf("for people: %s", out)
	}
	for _, bad := range [][]string{
		{"--account", theirs}, {"--account", "aa_1"}, {"--account", account, "--weight", "0"}, {"--account", account, "--weight", strconv.Itoa(maxWeight + 1)},
		{"--account", account, "--priority=-1"}, {"--account", account, "--priority", strconv.Itoa(maxPriority + 1)}, {"--account", account, "--currency", "kzt"},
		{"--account", account, "--method-prefix", "pm ok"}, {"--account", account, "--method-prefix", strings.Repeat("p", maxPrefix+1)},
		{"--account", account, "--flow", "both"}, {},
	} {
		add(exitCouldNot, bad...)
	}
	gone := func(code int, merchant, rule string) {
		t.Helper()
		hapax(t, code, "routing", "remove", "--merchant", merchant, rule)
	}
	gone(exitCouldNot, "other shop", first.text("id"))
	gone(exitCouldNot, "shop", id.ID{1}.Text(id.Rule))
	gone(exitCouldNot, "shop", account)
	gone(exitGood, "shop", first.text("id"))
	gone(exitCouldNot, "shop", first.text("id"))
	if rules := hapax(t, exitGood, "routing", "list", "--merchant", "shop").list("rules"); len(rules) != 1 || rules[0].text("id") != last.text("id") {
		t.Errorf("after the removal: %v", rules)
	}
}

func TestMerchantPolicy(t *testing.T) {
	installed(t)
	for _, name := range []string{"shop", "other shop"} {
		hapax(t, exitGood, "merchant", "add", "--name", name)
	}
	holds := func(code, compensate, merchant string, flags ...string) {
		t.Helper()
		o := hapax(t, exitGood, append([]string{"merchant", "policy", "--merchant", merchant}, flags...)...)
		if o.text("cancel_code") != code || o.text("compensate") != compensate {
			t.Errorf("%v: %v", flags, o)
		}
	}
	holds("optional", "review", "shop")
	holds("demanded", "review", "shop", "--cancel-code", "demanded")
	holds("demanded", "automatic", "shop", "--compensate", "automatic")
	holds("demanded", "automatic", "shop")
	holds("optional", "review", "shop", "--cancel-code", "optional", "--compensate", "review")
	holds("demanded", "automatic", "shop", "--cancel-code", "demanded", "--compensate", "automatic")
	holds("optional", "review", "other shop")
	hapax(t, exitCouldNot, "merchant", "policy", "--merchant", "shop", "--compensate", "never")
	hapax(t, exitCouldNot, "merchant", "policy", "--merchant", "no shop")
	if out, _ := plain(t, exitGood, "merchant", "policy", "--merchant", "shop"); out != "shop: cancel code demanded, compensation automatic\n" {
		t.Errorf("for people: %q", out)
	}
}
