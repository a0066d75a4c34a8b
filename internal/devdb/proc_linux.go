package devdb

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// dieWithParent asks the kernel to shut the server down when the thread that
// started it ends; startProcess keeps that thread for as long as the server
// lives, so a killed test or `dev` leaves no server behind.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGINT }

// runsIn tells whether process pid is a PostgreSQL server whose data folder is dir.
func runsIn(pid int, dir string) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil || cwd != dir {
		return false
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.HasPrefix(string(comm), "postgres")
}
