package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/hapaxpay/hapax/internal/dbtest"
	"github.com/hapaxpay/hapax/internal/devdb"
	"github.com/hapaxpay/hapax/internal/store"
)

// startDev runs dev as a process of its own until it says where everything is.
func startDev(t *testing.T, binary, dir string) *process {
	t.Helper()
	return startProcess(t, binary, []string{"HAPAX_DATA_DIR=" + dir}, "dev", "--listen", "127.0.0.1:0", "--sandbox-addr", "127.0.0.1:0")
}

// The newcomer's way: start, pay, ask, stop, start again and find everything as it was.
func TestDevStartsStopsAndRemembers(t *testing.T) {
	clean(t)
	binary := built(t)
	dir, err := devdb.TemporaryDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("HAPAX_DATA_DIR", dir)
	if told := hapax(t, exitCouldNot, "review", "list").text("error"); !strings.Contains(told, "no data at "+dir+"; start `hapax dev` first") {
		t.Errorf("without data a tool says: %s", told)
	}
	first := startDev(t, binary, dir)
	body, hosted := curlBodies(t, first.hello)
	status, payment := pay(t, first.hello.text("address"), first.hello.text("api_key"), "order-1-first-try", body)
	if status != 201 || payment.text("status") != "paid" {
		t.Fatalf("%d %v\n%s", status, payment, first.log)
	}
	if status, p := pay(t, first.hello.text("address"), first.hello.text("api_key"), "order-3-first-try", hosted); status != 201 || p.text("status") != "registered" {
		t.Errorf("the payer's page: %d %v\n%s", status, p, first.log)
	} else {
		payOnThePage(t, first, p)
	}
	checkInvariants(t, first.hello.text("sandbox"))                                           // a tool joins the running server
	if out, _ := plain(t, exitGood, "verify"); !strings.HasSuffix(out, "\n19 of 19 hold\n") { // and finds the sandbox
		t.Errorf("verify beside dev:\n%s", out)
	}
	if out, _ := plain(t, exitGood, "config"); !strings.Contains(out, "private PostgreSQL in "+dir) || !strings.Contains(out, "******** from "+filepath.Join(dir, memoryFile)) {
		t.Errorf("the settings in force:\n%s", out)
	}
	if log := first.log.String(); log != "" {
		t.Errorf("dev logs what is no warning:\n%s", log)
	}
	secretsAreKept(t, dir)
	if told := hapax(t, exitCouldNot, "dev", "--listen", "127.0.0.1:0").text("error"); !strings.Contains(told, "another `hapax dev` runs on "+dir) {
		t.Errorf("a second dev on the folder is told: %s", told)
	}
	if status, _ := get(t, first.hello.text("address")+"/readyz"); status != 200 {
		t.Errorf("the second dev disturbed the first: %d", status)
	}
	first.end(t, syscall.SIGTERM)

	second := startDev(t, binary, dir)
	if second.hello.text("api_key") != first.hello.text("api_key") {
		t.Error("the second start shows another key")
	}
	status, again := pay(t, second.hello.text("address"), second.hello.text("api_key"), "order-1-first-try", body)
	if status != 201 || again.text("id") != payment.text("id") {
		t.Errorf("the second start does not know the payment: %d %v", status, again)
	}
	if status, other := pay(t, second.hello.text("address"), second.hello.text("api_key"), "order-2", strings.Replace(body, "order-1", "order-2", 1)); status != 201 {
		t.Errorf("the second start cannot pay: %d %v\n%s", status, other, second.log)
	}
	if _, register := get(t, second.hello.text("sandbox")+"/register"); len(register.list("movements")) != 3 {
		t.Errorf("the register shows %v", register)
	}
	second.end(t, syscall.SIGINT)
	if out, _ := plain(t, exitGood, "verify"); !strings.Contains(out, "--sandbox URL") || !strings.Contains(out, "hold, 3 could be asked only in part\n") {
		t.Errorf("verify without dev:\n%s", out)
	}
	if all := hapax(t, exitGood, "merchant", "list").list("merchants"); len(all) != 1 || all[0].text("name") != shopName { // starts the server itself
		t.Errorf("merchants: %v", all)
	}
}

// Data of another development version are no dead end: whoever meets them learns how to begin anew.
func TestDevSaysHowToBeginAnew(t *testing.T) {
	clean(t)
	dir, err := devdb.TemporaryDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("HAPAX_DATA_DIR", dir)
	server, err := devdb.Start(t.Context(), devdb.Config{Dir: filepath.Join(dir, clusterFolder)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	owner := server.URL(devdb.RoleOwner, devdb.Database)
	if err := store.Migrate(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), "UPDATE schema_migration SET hash = sha256('other') WHERE version = 1")
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"dev"}, {"doctor"}} {
		told := hapax(t, exitCouldNot, args...).text("error")
		if !strings.Contains(told, "the data in "+dir+" are of another development version: delete that folder") {
			t.Errorf("%v says: %s", args, told)
		}
	}
}

// A port that was taken in place of a wanted one is taken again, so that what was copied from the screen still works.
func TestPortsAreRemembered(t *testing.T) {
	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := occupied.Close(); err != nil {
			t.Error(err)
		}
	}()
	wanted, mem, said := occupied.Addr().String(), &remembered{}, &bytes.Buffer{}
	open := func() string {
		t.Helper()
		said.Reset()
		l, err := (&tool{err: said}).openPort(mem, "the API", "HAPAX_LISTEN", wanted)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return l.Addr().String()
	}
	first := open()
	if first == wanted || !strings.Contains(said.String(), wanted+" is in use") || !strings.Contains(said.String(), "HAPAX_LISTEN") {
		t.Errorf("took %s and said %s", first, said)
	}
	if second := open(); second != first || !strings.Contains(said.String(), "as at the last start") {
		t.Errorf("took %s, before %s, and said %s", second, first, said)
	}
	wanted = "127.0.0.1:0"
	if open(); said.Len() != 0 || mem.Ports[wanted] != "" {
		t.Errorf("a port of the system's choice is remembered: %v, %s", mem.Ports, said)
	}
}

// curlBodies takes the bodies of both calls out of the text that people get.
func curlBodies(t *testing.T, hello object) (direct, hosted string) {
	t.Helper()
	var out bytes.Buffer
	if err := (&tool{out: &out}).welcome(hello.text("address"), hello.text("sandbox"), hello.text("api_key"), hello.text("data_dir")); err != nil {
		t.Fatal(err)
	}
	bodies := regexp.MustCompile(`-d '(\{.*\})'`).FindAllStringSubmatch(out.String(), -1)
	for _, part := range []string{hello.text("address") + "/v1/payments", "Bearer " + hello.text("api_key"), "Idempotency-Key: "} {
		if len(bodies) != 2 || !strings.Contains(out.String(), part) {
			t.Fatalf("the curl lacks %s:\n%s", part, &out)
		}
	}
	return bodies[0][1], bodies[1][1]
}

// payOnThePage pays as a payer does, who then closes the browser: the acquirer's webhook alone makes it paid.
func payOnThePage(t *testing.T, dev *process, p object) {
	t.Helper()
	page, err := http.PostForm(p.text("redirect_url"), url.Values{"do": {"pay"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := page.Body.Close(); err != nil || page.StatusCode >= http.StatusBadRequest {
		t.Fatalf("the page answers %d %v", page.StatusCode, err)
	}
	r := payRequest(t, dev.hello.text("address"), dev.hello.text("api_key"), "", "")
	r.Method, r.URL.Path, r.Body = http.MethodGet, "/v1/payments/"+p.text("id"), nil
	dbtest.Eventually(t, func() bool {
		_, now := send(t, r.Clone(t.Context()))
		return now.text("status") == "paid"
	})
	messages := hapax(t, exitGood, "inbox", "list", "--state", "applied").list("messages")
	if len(messages) == 0 || messages[0].text("type") != "charge.succeeded" || messages[0].text("payment") != p.text("id") || messages[0].text("trust") != "signed" {
		t.Errorf("the inbox: %v", messages)
	}
}

func secretsAreKept(t *testing.T, dir string) {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, memoryFile))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != fs.FileMode(0o600) {
		t.Errorf("%s has mode %v", memoryFile, info.Mode())
	}
}
