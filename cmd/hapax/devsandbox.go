package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sandboxProcess is the sandbox acquirer as dev runs it: a process of its own, since it is a witness and shares nothing.
type sandboxProcess struct {
	t   *tool
	cmd *exec.Cmd
	url string
}

// startSandbox starts it and waits until it listens.
func (t *tool) startSandbox(addr, dir, secret string) (*sandboxProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// Ctrl-C reaches us first, and the sandbox is stopped last: neither the context nor the terminal's group ends it.
	cmd := exec.CommandContext(context.WithoutCancel(t.ctx), self, "sandbox", "--json", "--with-parent", "--addr", addr, "--dir", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(withoutOurs(os.Environ()), "HAPAX_SANDBOX_SECRET="+secret)
	cmd.Stderr = t.err
	// Never written to, and closed by the system when this process ends, however it ends: then the sandbox stops too.
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &sandboxProcess{t: t, cmd: cmd}
	if p.url, err = listensOn(out); err != nil {
		p.stop()
		return nil, fmt.Errorf("the sandbox acquirer did not start: %w", err)
	}
	return p, nil
}

// withoutOurs leaves the settings of Hapax out of an environment: a witness does not get our secrets.
func withoutOurs(environment []string) []string {
	return slices.DeleteFunc(environment, func(v string) bool { return strings.HasPrefix(v, "HAPAX_") })
}

// listensOn reads the line that a --json command prints when it listens.
func listensOn(out io.Reader) (string, error) {
	var hello struct {
		OK      bool   `json:"ok"`
		Address string `json:"address"`
		Error   string `json:"error"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(line, &hello); err != nil {
		return "", err
	}
	if !hello.OK {
		return "", errors.New(hello.Error)
	}
	return hello.Address, nil
}

// stop ends the process, by force when it takes too long.
func (p *sandboxProcess) stop() {
	say := func(err error) {
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			fmt.Fprintln(p.t.err, "hapax: sandbox:", err)
		}
	}
	say(p.cmd.Process.Signal(syscall.SIGTERM))
	timer := time.AfterFunc(stopWithin, func() { say(p.cmd.Process.Kill()) })
	defer timer.Stop()
	say(p.cmd.Wait())
}
