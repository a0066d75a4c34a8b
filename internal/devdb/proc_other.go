//go:build !linux

package devdb

import (
	"os/exec"
	"syscall"
)

func dieWithParent(*exec.Cmd) {}

// runsIn can only ask whether the process exists; a reused process id is then
// PostgreSQL's own to recognise.
func runsIn(pid int, _ string) bool { return syscall.Kill(pid, 0) == nil }
