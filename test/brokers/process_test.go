package brokers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// startWithin bounds the start of a broker, and stopWithin its end.
const (
	startWithin = 3 * time.Minute
	stopWithin  = 10 * time.Second
)

// process is a broker in a process of its own, so that it can be killed and stopped as the kernel does it.
type process struct {
	t       *testing.T
	command func() *exec.Cmd
	address string // answers there when it is up
	cmd     *exec.Cmd
	ended   chan struct{}
	said    bytes.Buffer
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = p.command()
	p.said.Reset()
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	if _, err := p.cmd.StdinPipe(); err != nil { // our test brokers end with us: their input ends
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	keepPID(p.t, p.cmd.Process.Pid)
	p.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		var exit *exec.ExitError // killed: that is how it ends
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			panic(err)
		}
	}(p.cmd, p.ended)
	ctx, cancel := context.WithTimeout(p.t.Context(), startWithin)
	defer cancel()
	eventually(ctx, p.t, "the broker does not listen", func() error {
		select {
		case <-p.ended:
			p.t.Fatalf("the broker ended: %s", p.said.String())
		default:
		}
		conn, err := net.Dial("tcp", p.address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// kill ends the process as SIGKILL does: nothing is written any more.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Error(err)
	}
	select {
	case <-p.ended:
	case <-time.After(stopWithin):
		p.t.Fatal("the broker does not end")
	}
}

// pause stops the process where it stands; its connections stay.
func (p *process) pause() { p.signal(syscall.SIGSTOP) }

func (p *process) resume() { p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// keepPID writes the process id where whoever started this test finds it, should the test end without clearing up.
func keepPID(t *testing.T, pid int) {
	t.Helper()
	name := os.Getenv(envPIDs)
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(f, pid); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// role is a command that runs this very program as a broker.
func role(name string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), envRole+"="+name), env...)
	return cmd
}

// untilInputEnds keeps a broker's process until the test that started it is gone.
func untilInputEnds() {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		panic(err)
	}
}

// freePort gives a port of this machine that nobody listens at.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { closed(t, l.Close()) }()
	return l.Addr().(*net.TCPAddr).Port
}

// eventually asks again until there is no error, for doneIn at most.
func eventually(ctx context.Context, t *testing.T, what string, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, doneIn)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}
