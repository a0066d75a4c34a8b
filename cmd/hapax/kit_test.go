package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hapaxpay/hapax/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// installed points the environment at a database of this test, with a secret key.
func installed(t *testing.T) *dbtest.DB {
	t.Helper()
	clean(t)
	db := dbtest.Open(t)
	t.Setenv("HAPAX_DATABASE_URL", db.Service())
	t.Setenv("HAPAX_OWNER_DATABASE_URL", db.Owner())
	t.Setenv("HAPAX_SECRET_KEY", base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 32)))
	return db
}

// clean takes settings of the machine out of the way.
func clean(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "HAPAX_") && name != dbtest.EnvURL {
			t.Setenv(name, value) // restored at the end
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// object is what a command prints with --json.
type object map[string]any

func (o object) text(name string) string {
	s, _ := o[name].(string)
	return s
}

func (o object) list(name string) (all []object) {
	items, _ := o[name].([]any)
	for _, i := range items {
		all = append(all, object(i.(map[string]any)))
	}
	return all
}

// hapax runs one command with --json to its end; it must exit with code and print one object with a fitting "ok".
func hapax(t *testing.T, code int, args ...string) object {
	t.Helper()
	return hapaxReading(t, code, "", args...)
}

func hapaxReading(t *testing.T, code int, input string, args ...string) object {
	t.Helper()
	var out, errOut bytes.Buffer
	got := run(t.Context(), append(args, "--json"), strings.NewReader(input), &out, &errOut)
	if got != code {
		t.Fatalf("hapax %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, &out, &errOut)
	}
	var o object
	decoder := json.NewDecoder(&out)
	if err := decoder.Decode(&o); err != nil {
		t.Fatalf("hapax %s: %v", strings.Join(args, " "), err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		t.Errorf("hapax %s prints more than one object", strings.Join(args, " "))
	}
	if ok, is := o["ok"].(bool); !is || ok != (code == exitGood) {
		t.Errorf("hapax %s: exit %d and ok %v", strings.Join(args, " "), code, o["ok"])
	}
	return o
}

// plain runs one command for people.
func plain(t *testing.T, code int, args ...string) (out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	if got := run(t.Context(), args, strings.NewReader(""), &o, &e); got != code {
		t.Fatalf("hapax %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, &o, &e)
	}
	return o.String(), e.String()
}

// running is a command that goes on until it is told to stop.
type running struct {
	address string
	log     *safeBuffer
	stop    func() (code int)
}

// start runs a command in the background and returns when it says where it listens. It is stopped at the end of the test.
func start(t *testing.T, args ...string) running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	reader, writer := io.Pipe()
	log := &safeBuffer{}
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, append(args, "--json"), strings.NewReader(""), writer, log)
		if err := writer.Close(); err != nil {
			t.Error(err)
		}
		ended <- code
	}()
	stop := sync.OnceValue(func() int { cancel(); return <-ended })
	t.Cleanup(func() {
		if code := stop(); code != exitGood {
			t.Errorf("hapax %s: exit %d\n%s", args[0], code, log)
		}
	})
	o, err := firstObject(reader)
	if err != nil {
		t.Fatalf("hapax %s: %v\n%s", args[0], err, log)
	}
	return running{address: o.text("address"), log: log, stop: stop}
}

// firstObject reads the line that a command prints when it runs.
func firstObject(from io.Reader) (o object, err error) {
	line, err := bufio.NewReader(from).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(line, &o); err != nil {
		return nil, err
	}
	if o["ok"] != true {
		return nil, fmt.Errorf("it said %s", line)
	}
	return o, nil
}

// built makes the binary as `make build` does.
func built(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "hapax")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// endWithin bounds how long a process may take to end: for dev that is server, sandbox and service.
const endWithin = time.Minute

// process is a running command of the built binary.
type process struct {
	cmd   *exec.Cmd
	hello object
	log   *safeBuffer
}

// startProcess runs a command as a process of its own, with these settings and no others, until it says where everything
// is. It is stopped at the end of the test.
func startProcess(t *testing.T, binary string, settings []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(context.WithoutCancel(t.Context()), binary, append(args, "--json")...), log: &safeBuffer{}}
	p.cmd.Env = append(withoutOurs(os.Environ()), settings...)
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end(t, syscall.SIGTERM) })
	if p.hello, err = firstObject(out); err != nil {
		t.Fatalf("%s: %v\n%s", args[0], err, p.log)
	}
	return p
}

// end stops the process and waits until it is gone; a second call does nothing.
func (p *process) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	p.signal(t, signal)
	if err := p.wait(t); err != nil {
		t.Errorf("%s after %v: %v\n%s", p.cmd.Args[1], signal, err, p.log)
	}
}

func (p *process) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
}

// wait returns how the process ended; one that does not end is killed, and fails the test.
func (p *process) wait(t *testing.T) error {
	t.Helper()
	timer := time.AfterFunc(endWithin, func() {
		t.Errorf("%s did not end within %v", p.cmd.Args[1], endWithin)
		if err := p.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
	})
	defer timer.Stop()
	return p.cmd.Wait()
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// pay makes a payment over HTTP.
func pay(t *testing.T, address, apiKey, key, body string) (status int, payment object) {
	t.Helper()
	return send(t, payRequest(t, address, apiKey, key, body))
}

func payRequest(t *testing.T, address, apiKey, key, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/v1/payments", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+apiKey)
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	return r
}

func send(t *testing.T, r *http.Request) (status int, body object) {
	t.Helper()
	status, body, err := trySend(r)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

// trySend is send where the other side may vanish.
func trySend(r *http.Request) (status int, body object, err error) {
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if closeErr := answer.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, nil, err
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return 0, nil, fmt.Errorf("%w: %s", err, raw)
	}
	return answer.StatusCode, body, nil
}

func get(t *testing.T, url string) (status int, body object) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, r)
}
