package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/devdb"
)

// endWithin bounds how long dev may take to stop: server, sandbox and service.
const endWithin = time.Minute

// built makes the binary as `make build` does.
func built(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "hapax")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// devProcess is one running `hapax dev`.
type devProcess struct {
	cmd   *exec.Cmd
	hello object
	log   *safeBuffer
}

// startDev runs dev as a process of its own until it says where everything is.
func startDev(t *testing.T, binary, dir string) *devProcess {
	t.Helper()
	d := &devProcess{cmd: exec.CommandContext(context.WithoutCancel(t.Context()), binary, "dev", "--json", "--listen", "127.0.0.1:0", "--sandbox-addr", "127.0.0.1:0"), log: &safeBuffer{}}
	d.cmd.Env = append(withoutOurs(os.Environ()), "HAPAX_DATA_DIR="+dir)
	d.cmd.Stderr = d.log
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.end(t, syscall.SIGTERM) })
	if d.hello, err = firstObject(out); err != nil {
		t.Fatalf("dev: %v\n%s", err, d.log)
	}
	return d
}

// end stops the process and waits until it is gone; a second call does nothing.
func (d *devProcess) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if d.cmd.ProcessState != nil {
		return
	}
	if err := d.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	timer := time.AfterFunc(endWithin, func() {
		if err := d.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
	})
	defer timer.Stop()
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("dev after %v: %v\n%s", signal, err, d.log)
	}
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
	first := startDev(t, binary, dir)
	body := curlBody(t, first.hello)
	status, payment := pay(t, first.hello.text("address"), first.hello.text("api_key"), "order-1-first-try", body)
	if status != 201 || payment.text("status") != "paid" {
		t.Fatalf("%d %v\n%s", status, payment, first.log)
	}
	checkInvariants(t, first.hello.text("sandbox")) // a tool joins the running server
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
	if _, register := get(t, second.hello.text("sandbox")+"/register"); len(register.list("movements")) != 2 {
		t.Errorf("the register shows %v", register)
	}
	second.end(t, syscall.SIGINT)
	if all := hapax(t, exitGood, "merchant", "list").list("merchants"); len(all) != 1 || all[0].text("name") != shopName { // starts the server itself
		t.Errorf("merchants: %v", all)
	}
}

// curlBody takes the body out of the text that people get.
func curlBody(t *testing.T, hello object) string {
	t.Helper()
	var out bytes.Buffer
	if err := (&tool{out: &out}).welcome(hello.text("address"), hello.text("sandbox"), hello.text("api_key"), hello.text("data_dir")); err != nil {
		t.Fatal(err)
	}
	body := regexp.MustCompile(`-d '(\{.*\})'`).FindStringSubmatch(out.String())
	for _, part := range []string{hello.text("address") + "/v1/payments", "Bearer " + hello.text("api_key"), "Idempotency-Key: "} {
		if body == nil || !strings.Contains(out.String(), part) {
			t.Fatalf("the curl lacks %s:\n%s", part, &out)
		}
	}
	return body[1]
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
