package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/store"
)

const acquirerSecret = "what-the-acquirer-wants-to-hear"

// shopOf makes a test merchant with a key, and its account at a sandbox.
func shopOf(t *testing.T, sandbox string) (apiKey string) {
	t.Helper()
	merchant := hapax(t, exitGood, "merchant", "add", "--name", "corner shop").list("merchants")[0].text("id")
	apiKey = hapax(t, exitGood, "apikey", "add", "--merchant", merchant, "--name", "checkout").text("api_key")
	t.Setenv("SHOP_ACQUIRER_SECRETS", `{"secret":"`+acquirerSecret+`"}`)
	hapax(t, exitGood, "acquirer-account", "add", "--merchant", "corner shop", "--adapter", "sandbox",
		"--settings", `{"url":"`+sandbox+`"}`, "--secrets", "env:SHOP_ACQUIRER_SECRETS")
	return apiKey
}

func startSandbox(t *testing.T) running {
	t.Helper()
	t.Setenv("HAPAX_SANDBOX_SECRET", acquirerSecret)
	return start(t, "sandbox", "--addr", "127.0.0.1:0", "--dir", t.TempDir())
}

// One payment from the first command to the invariants, and one that a person decides.
func TestFromMerchantToVerify(t *testing.T) {
	installed(t)
	secretKey := os.Getenv("HAPAX_SECRET_KEY")
	sandbox := startSandbox(t)
	apiKey := shopOf(t, sandbox.address)
	server := start(t, "serve", "--listen", "127.0.0.1:0")

	status, payment := pay(t, server.address, apiKey, "first", `{"amount":499000,"currency":"KZT","client_reference":"order-1","payment_method":"pm_ok"}`)
	if status != 201 || payment.text("status") != "paid" {
		t.Fatalf("%d %v", status, payment)
	}
	status, again := pay(t, server.address, apiKey, "first", `{"amount":499000,"currency":"KZT","client_reference":"order-1","payment_method":"pm_ok"}`)
	if status != 201 || again.text("id") != payment.text("id") {
		t.Errorf("the repeat got %d %v", status, again)
	}
	if _, register := get(t, sandbox.address+"/register"); len(register.list("movements")) != 1 {
		t.Errorf("the register shows %v", register)
	}
	if told := hapax(t, exitGood, "timeline", "order-1").list("lines"); len(told) < 3 {
		t.Errorf("the story of order-1 is %v", told)
	}
	hapax(t, exitGood, "timeline", payment.text("acquirer_reference"), "--merchant", "corner shop")
	hapax(t, exitFound, "timeline", "order-99")
	if quoted := hapax(t, exitGood, "timeline", `"first"`).list("lines"); len(quoted) < 3 {
		t.Errorf("the key as clients quote it: %v", quoted)
	}
	hapax(t, exitFound, "timeline", `"order-99"`)
	checkInvariants(t, sandbox.address)
	decideOne(t, server.address, apiKey)
	checkInvariants(t, sandbox.address)
	hapax(t, exitGood, "doctor")
	checkMetrics(t, server.address)
	if code := server.stop(); code != exitGood {
		t.Errorf("serve ended with %d\n%s", code, server.log)
	}
	for _, secret := range []string{apiKey, acquirerSecret, secretKey, `"first"`} {
		if strings.Contains(server.log.String(), secret) {
			t.Errorf("the log holds a secret:\n%s", server.log)
		}
	}
}

func checkInvariants(t *testing.T, sandbox string) {
	t.Helper()
	for _, i := range hapax(t, exitGood, "verify", "--sandbox", sandbox).list("invariants") {
		if i.text("skipped") != "" {
			t.Errorf("%s was not asked: %s", i.text("id"), i.text("skipped"))
		}
	}
}

// checkMetrics: what was done is counted, and what waits is read on scrape.
func checkMetrics(t *testing.T, address string) {
	t.Helper()
	answer, err := http.Get(address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if closeErr := answer.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"hapax_repeats_served_total 1", "hapax_reviews_open 0", "hapax_backlog_readable 1"} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("the metrics lack %q:\n%s", line, text)
		}
	}
}

// decideOne lets a payment go wrong and a person decide it: twice the same click, then another opinion.
func decideOne(t *testing.T, address, apiKey string) {
	t.Helper()
	status, payment := pay(t, address, apiKey, "odd", `{"amount":499000,"currency":"KZT","client_reference":"order-2","payment_method":"pm_wrong_amount"}`)
	if status != 202 {
		t.Fatalf("%d %v", status, payment)
	}
	reviews := hapax(t, exitGood, "review", "list").list("reviews")
	if len(reviews) != 1 || reviews[0].text("reason") != "amount_mismatch" || reviews[0].text("payment") != payment.text("id") {
		t.Fatalf("the queue holds %v", reviews)
	}
	review := reviews[0].text("id")
	shown := hapax(t, exitGood, "review", "show", review)
	if len(shown.list("timeline")) == 0 || len(shown.list("allowed")) == 0 {
		t.Errorf("the entry is shown without evidence or verdicts: %v", shown)
	}
	for _, a := range shown.list("allowed") {
		if a.text("consequence") == "" {
			t.Errorf("%s has no consequence", a.text("verdict"))
		}
	}
	for where, verdicts := range map[string][]object{"list": reviews[0].list("allowed"), "show": shown.list("allowed")} {
		if len(verdicts) != 2 || verdicts[0].text("verdict") != "compensate" || verdicts[1].text("verdict") != "returned" { // one minor unit more than was asked
			t.Errorf("review %s allows %v", where, verdicts)
		}
	}
	decide := []string{"review", "decide", review, "--verdict", "returned", "--person", "finance", "--reason", "given back in the acquirer's office"}
	t.Setenv("HAPAX_SECOND_PERSON", "true")
	for _, second := range []string{" ", "Finance", " finance "} {
		if told := hapax(t, exitCouldNot, append(decide, "--with", second)...).text("error"); !strings.Contains(told, "second person") {
			t.Errorf("with %q as the second person: %s", second, told)
		}
	}
	t.Setenv("HAPAX_SECOND_PERSON", "false")
	for _, verdict := range []string{"paid", "apply"} {
		told := hapax(t, exitCouldNot, "review", "decide", review, "--verdict", verdict, "--person", "finance", "--reason", "no", "--reference", "x").text("error")
		if !strings.Contains(told, "allowed: compensate, returned; no other: the money is more than was asked") {
			t.Errorf("%s is refused without a way on: %s", verdict, told)
		}
	}
	t.Setenv("HAPAX_SECRET_KEY", "") // whoever decides needs no secret of the acquirer
	first := hapax(t, exitGood, decide...)
	second := hapax(t, exitGood, decide...)
	if first["replayed"] != false || second["replayed"] != true || first.text("idempotency_key") != second.text("idempotency_key") {
		t.Errorf("a double click is %v and %v", first, second)
	}
	if _, log := plain(t, exitGood, decide...); log != "" {
		t.Errorf("a tool logs what it says itself:\n%s", log)
	}
	hapax(t, exitCouldNot, append(decide[:len(decide)-1], "a second opinion")...)
	if left := hapax(t, exitGood, "review", "list").list("reviews"); len(left) != 0 {
		t.Errorf("the queue still holds %v", left)
	}
	if out, _ := plain(t, exitGood, "review", "show", review); !strings.Contains(out, "finance") {
		t.Errorf("nobody learns who decided:\n%s", out)
	}
}

// A broken invariant is exit 1, with the row.
func TestVerifyFindsABrokenRow(t *testing.T) {
	db := installed(t)
	sandbox := startSandbox(t)
	apiKey := shopOf(t, sandbox.address)
	server := start(t, "serve", "--listen", "127.0.0.1:0")
	if status, body := pay(t, server.address, apiKey, "k", `{"amount":100,"currency":"KZT","payment_method":"pm_ok"}`); status != 201 {
		t.Fatalf("%d %v", status, body)
	}
	if _, err := db.OwnerPool(t).Exec(t.Context(), "UPDATE movement SET amount = amount + 1"); err != nil {
		t.Fatal(err)
	}
	broken := 0
	for _, i := range hapax(t, exitFound, "verify", "--sandbox", sandbox.address).list("invariants") {
		if i["ok"] == false {
			broken++
		}
	}
	if broken == 0 {
		t.Error("exit 1 without a broken invariant")
	}
}

func TestKeysRotateWithOverlapAndEnd(t *testing.T) {
	installed(t)
	both := hapax(t, exitGood, "merchant", "add", "--name", "shop", "--mode", "both").list("merchants")
	if len(both) != 2 || both[0].text("pair") != both[1].text("id") || both[1].text("pair") != both[0].text("id") {
		t.Fatalf("the tenants are not paired: %v", both)
	}
	test := both[0].text("id")
	hapax(t, exitCouldNot, "apikey", "add", "--merchant", "shop") // two tenants have this name
	made := hapax(t, exitGood, "apikey", "add", "--merchant", test)
	if !strings.HasPrefix(made.text("api_key"), "hpx_test_") {
		t.Errorf("the key is not one of a test tenant")
	}
	rotated := hapax(t, exitGood, "apikey", "rotate", "--merchant", test, made.text("id"), "--overlap", "48h")
	keys := hapax(t, exitGood, "apikey", "list", "--merchant", test).list("api_keys")
	if len(keys) != 2 || keys[0].text("expires_at") == "" || keys[1].text("expires_at") != "" {
		t.Errorf("after the rotation: %v", keys)
	}
	listed, _ := plain(t, exitGood, "apikey", "list", "--merchant", test)
	if strings.Contains(listed, made.text("api_key")) || strings.Contains(listed, rotated.text("api_key")) {
		t.Error("a key is shown twice")
	}
	hapax(t, exitGood, "apikey", "revoke", "--merchant", test, rotated.text("id"))
	if again := hapax(t, exitGood, "apikey", "revoke", "--merchant", test, rotated.text("id")); again["already"] != true || again.text("revoked_at") == "" {
		t.Errorf("the second revocation says %v", again)
	}
	if out, _ := plain(t, exitGood, "apikey", "revoke", "--merchant", test, rotated.text("id")); !strings.Contains(out, "revoked already") {
		t.Errorf("the third revocation says %s", out)
	}
	hapax(t, exitCouldNot, "apikey", "revoke", "--merchant", test, "key_"+strings.Repeat("0", 26))
}

// A new key takes over what the old one was for; one that has ended is not brought back.
func TestOnlyALivingKeyIsRotated(t *testing.T) {
	installed(t)
	shop := hapax(t, exitGood, "merchant", "add", "--name", "shop").list("merchants")[0].text("id")
	rotate := func(code int, key string, more ...string) object {
		return hapax(t, code, append([]string{"apikey", "rotate", "--merchant", shop, key}, more...)...)
	}
	first := hapax(t, exitGood, "apikey", "add", "--merchant", shop, "--name", "checkout").text("id")
	second := rotate(exitGood, first, "--overlap", "0s").text("id")
	third := rotate(exitGood, second, "--name", "till").text("id")
	keys := hapax(t, exitGood, "apikey", "list", "--merchant", shop).list("api_keys")
	if len(keys) != 3 || keys[1].text("name") != "checkout" || keys[2].text("name") != "till" {
		t.Errorf("the names are %v", keys)
	}
	if told := rotate(exitCouldNot, first).text("error"); !strings.Contains(told, "expired at") {
		t.Errorf("an expired key: %s", told)
	}
	hapax(t, exitGood, "apikey", "revoke", "--merchant", shop, third)
	if told := rotate(exitCouldNot, third).text("error"); !strings.Contains(told, "was revoked at") {
		t.Errorf("a revoked key: %s", told)
	}
	if now := hapax(t, exitGood, "apikey", "list", "--merchant", shop).list("api_keys"); len(now) != 3 {
		t.Errorf("a refused rotation made a key: %v", now)
	}
}

func TestNamesAreRefusedInWords(t *testing.T) {
	installed(t)
	for name, want := range map[string]string{"": "empty", " \t": "empty", "a\nb": "control characters", "a\xff": "not text",
		strings.Repeat("ы", maxName+1): "201 characters, more than 200"} {
		if told := hapax(t, exitCouldNot, "merchant", "add", "--name="+name).text("error"); !strings.Contains(told, want) {
			t.Errorf("%q: %s", name, told)
		}
	}
	hapax(t, exitGood, "merchant", "add", "--name", strings.Repeat("ы", maxName))
}

func TestAccountsAreCheckedBeforeTheyAreStored(t *testing.T) {
	installed(t)
	hapax(t, exitGood, "merchant", "add", "--name", "shop")
	add := []string{"acquirer-account", "add", "--merchant", "shop", "--adapter", "sandbox", "--settings"}
	good, secret := `{"url":"http://127.0.0.1:1"}`, `{"secret":"not-for-logs"}`
	for _, bad := range []struct {
		settings, input string
		more            []string
	}{
		{`{"url":"http://127.0.0.1:1","contract":{"repeat_budget":0}}`, secret, nil},
		{`{"url":"http://127.0.0.1:1","other":1}`, secret, nil},
		{good, `{"secret":""}`, nil},
		{good, "", nil},
		{good, "", []string{"--secrets", secret}}, // a secret on the command line
		{good, `{"secret":"not-for-logs","webhook_secrets":["whsec_c2hvcnQ="]}`, nil},
		{good, `{"secret":"not-for-logs","webhook_secrets":["v1,whsec_bm90LWZvci1sb2dzLW5vdC1mb3ItbG9ncw=="]}`, nil},
		{"@" + filepath.Join(t.TempDir(), "missing"), secret, nil},
	} {
		told := hapaxReading(t, exitCouldNot, bad.input, append(append(add, bad.settings), bad.more...)...)
		if strings.Contains(told.text("error"), "not-for-logs") {
			t.Errorf("the error holds the secret: %s", told.text("error"))
		}
	}
	if all := hapax(t, exitGood, "acquirer-account", "list", "--merchant", "shop").list("acquirer_accounts"); len(all) != 0 {
		t.Errorf("a refused account is stored: %v", all)
	}
	made := hapaxReading(t, exitGood, secret, append(add, good)...)
	file := filepath.Join(t.TempDir(), "secrets.json")
	if err := os.WriteFile(file, []byte(`{"secret":"another"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	hapax(t, exitGood, "acquirer-account", "rotate", "--merchant", "shop", made.text("id"), "--secrets", "@"+file)
	t.Setenv("HAPAX_SECRET_KEY", "")
	hapax(t, exitCouldNot, "acquirer-account", "rotate", "--merchant", "shop", made.text("id"), "--secrets", "@"+file)
	all := hapax(t, exitGood, "acquirer-account", "list", "--merchant", "shop").list("acquirer_accounts")
	if len(all) != 1 || all[0].text("id") != made.text("id") || all[0].text("webhooks") != made.text("webhooks") ||
		!regexp.MustCompile("^/v1/acquirer_accounts/aa_[0-9a-z]{52}/webhooks$").MatchString(made.text("webhooks")) {
		t.Errorf("the list shows %v", all)
	}
	if known := hapax(t, exitGood, "acquirers").list("acquirers"); len(known) == 0 || known[0].text("source") == "" || known[0].text("tested_on") == "" {
		t.Errorf("a contract without its source or date: %v", known)
	}
}

func TestConfigIsMaskedAndRefusedWithItsArithmetic(t *testing.T) {
	installed(t)
	t.Setenv("HAPAX_DATABASE_URL", "postgres://service:open-sesame@db.example:5432/hapax?sslpassword=open-sesame")
	t.Setenv("HAPAX_OWNER_DATABASE_URL", "host=db.example user=owner password=open-sesame")
	out, _ := plain(t, exitGood, "config")
	if strings.Contains(out, "open-sesame") || strings.Contains(out, os.Getenv("HAPAX_SECRET_KEY")) || !strings.Contains(out, "db.example") {
		t.Errorf("not masked, or too much:\n%s", out)
	}
	refused := hapax(t, exitFound, "config", "--lease", "26s").text("refused")
	if !strings.Contains(refused, "call until 25s + record 4s + margin 1s = 30s is more than lease 26s") {
		t.Errorf("the arithmetic is not shown: %s", refused)
	}
	told := hapax(t, exitCouldNot, "serve", "--read", "20s").text("error")
	if !strings.Contains(told, "pause 400ms = 43.4s is more than call until 25s") {
		t.Errorf("serve does not show the arithmetic: %s", told)
	}
}

func TestFaultsAreRefusedWhereALiveMerchantExists(t *testing.T) {
	installed(t)
	t.Setenv("HAPAX_FAULTS", "clock=+1s")
	server := start(t, "serve", "--listen", "127.0.0.1:0")
	if code := server.stop(); code != exitGood {
		t.Errorf("exit %d without a live merchant", code)
	}
	hapax(t, exitGood, "merchant", "add", "--name", "real", "--mode", "live")
	if told := hapax(t, exitCouldNot, "serve", "--listen", "127.0.0.1:0").text("error"); !strings.Contains(told, "live merchant") {
		t.Errorf("refused for another reason: %s", told)
	}
}

func TestWorkersServeHealthAndNoAPI(t *testing.T) {
	installed(t)
	server := start(t, "serve", "--only", "workers", "--listen", "127.0.0.1:0")
	if status, body := get(t, server.address+"/readyz"); status != 200 || body["ok"] != true {
		t.Errorf("%d %v", status, body)
	}
	answer, err := http.Get(server.address + "/v1/payments")
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("the API answers %d", answer.StatusCode)
	}
}

func TestEpochIsHeldAndReleased(t *testing.T) {
	installed(t)
	before := hapax(t, exitGood, "epoch", "show")
	hapax(t, exitGood, "epoch", "hold", "--why", "a standby was promoted by hand", "--from", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	held := hapax(t, exitFound, "epoch", "show")
	if held["held"] != true || held["epoch"] == before["epoch"] || held.text("lost_from") == "" {
		t.Errorf("after the hold: %v", held)
	}
	if told := hapax(t, exitCouldNot, "epoch", "acknowledge", "1", "--why", "an old page was read").text("error"); !strings.Contains(told, "epoch 2 is on hold, not 1") {
		t.Errorf("another epoch: %s", told)
	}
	hapax(t, exitGood, "epoch", "acknowledge", "2", "--why", "compared by hand")
	hapax(t, exitGood, "epoch", "show")
	hapax(t, exitGood, "epoch", "restored", "--why", "a dump")
	hapax(t, exitFound, "epoch", "show")
}

// A hold whose interval ends before it begins would be compared, and end, at once.
func TestEpochRefusesWhatHoldsNothing(t *testing.T) {
	installed(t)
	ahead, past := time.Now().Add(time.Hour).UTC().Format(time.RFC3339), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	if told := hapax(t, exitCouldNot, "epoch", "hold", "--why", "a typing error", "--from", ahead).text("error"); !strings.Contains(told, "lies ahead") {
		t.Errorf("later than now: %s", told)
	}
	for _, args := range [][]string{{"hold", "--from", past}, {"acknowledge", "1"}, {"restored"}} {
		for _, why := range []string{"", " \t"} {
			if told := hapax(t, exitCouldNot, append(append([]string{"epoch"}, args...), "--why="+why)...).text("error"); !strings.Contains(told, "--why is empty") {
				t.Errorf("%v with the reason %q: %s", args, why, told)
			}
		}
	}
	if now := hapax(t, exitGood, "epoch", "show"); now["epoch"] != float64(1) {
		t.Errorf("a refused command made an epoch: %v", now)
	}
	if told := hapax(t, exitCouldNot, "epoch", "acknowledge", "1", "--why", "x").text("error"); told != "sends are not on hold" {
		t.Errorf("without a hold: %s", told)
	}
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	db := installed(t)
	hapax(t, exitGood, "doctor")
	if _, err := db.OwnerPool(t).Exec(t.Context(), "ALTER DATABASE "+db.Name()+" SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	wrong := ""
	for _, c := range hapax(t, exitFound, "doctor").list("checks") {
		if c["ok"] == false {
			wrong += c.text("name")
		}
	}
	if wrong != "synchronous_commit" {
		t.Errorf("found wrong: %s", wrong)
	}
}

func TestMigrateAndVersion(t *testing.T) {
	installed(t)
	if o := hapax(t, exitGood, "migrate"); o["schema_version"] != float64(store.LatestVersion()) {
		t.Errorf("%v", o)
	}
	if o := hapax(t, exitGood, "version"); o.text("version") == "" {
		t.Errorf("%v", o)
	}
}

func TestWhatCannotRun(t *testing.T) {
	clean(t)
	t.Setenv("HAPAX_SECRET_KEY", "open-sesame")
	hapax(t, exitCouldNot, "serve") // no database
	hapax(t, exitCouldNot, "no-such-command")
	hapax(t, exitCouldNot, "apikey", "add") // no merchant
	t.Setenv("HAPAX_DATABASE_URL", "postgres://service:open-sesame@127.0.0.1:1/hapax")
	for _, args := range [][]string{{"doctor"}, {"verify"}, {"review", "list"}, {"serve"}} {
		if told := hapax(t, exitCouldNot, args...).text("error"); strings.Contains(told, "open-sesame") {
			t.Errorf("%v tells a secret: %s", args, told)
		}
	}
	if told := hapax(t, exitCouldNot, "demo", "--only", "nope").text("error"); !strings.Contains(told, "incident_1, incident_2") {
		t.Errorf("the scenarios are not told: %s", told)
	}
}

// The list of commands is what a newcomer needs; the settings are told where they are asked for.
func TestHelp(t *testing.T) {
	clean(t)
	t.Setenv("HAPAX_SECRET_KEY", "open-sesame")
	whole, _ := plain(t, exitGood, "--help")
	if alone, _ := plain(t, exitGood); alone != whole {
		t.Errorf("alone it prints\n%s", alone)
	}
	commands, flags := strings.Index(whole, "acquirer-account add"), strings.Index(whole, "--json")
	if commands < 0 || flags < commands || strings.Contains(whole, "--lease") || strings.Contains(whole, "open-sesame") {
		t.Errorf("help:\n%s", whole)
	}
	if settings, _ := plain(t, exitGood, "config", "--help"); !strings.Contains(settings, "--lease") || strings.Contains(settings, "open-sesame") {
		t.Errorf("the settings:\n%s", settings)
	}
	if decide, _ := plain(t, exitGood, "review", "decide", "--help"); !strings.Contains(decide, "    hapax review decide rev_") || strings.Contains(decide, "--lease") {
		t.Errorf("no example, or more than was asked for:\n%s", decide)
	}
	if out, _ := plain(t, exitGood, "--version"); out != "hapax "+version+"\n" {
		t.Errorf("version: %s", out)
	}
}
