package devdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// installLimit bounds one call of apt-get, so that an unreachable mirror cannot
// hold a build for ever.
const installLimit = 10 * time.Minute

// ErrMayNotInstall says that this machine is not a Debian on which we are root.
var ErrMayNotInstall = errors.New("packages are installed only on Debian as root")

// InstallHint says in one line what to install on this machine.
func InstallHint() string {
	switch {
	case isDebian() && os.Geteuid() != 0:
		return "install it: sudo apt-get update && sudo apt-get install -y postgresql"
	case isDebian():
		return "install it: apt-get update && apt-get install -y postgresql"
	case runtime.GOOS == "darwin":
		return "install it: brew install postgresql@15"
	}
	return "install it: PostgreSQL 15 or later with its server programs (initdb, postgres, pg_basebackup); " +
		"Fedora: dnf install postgresql-server postgresql; Alpine: apk add postgresql; Arch: pacman -S postgresql"
}

// CanInstall tells whether InstallDebian may try: Debian or a child of it, as root.
func CanInstall() bool { return isDebian() && os.Geteuid() == 0 }

// InstallDebian installs PostgreSQL by apt-get, without questions. A cluster of
// Debian's own, should the package make one, is neither used nor touched later.
// Output goes to out. It returns
// ErrMayNotInstall where it may not, and leaves the machine as apt-get left it
// on any other failure.
func InstallDebian(ctx context.Context, out io.Writer) error {
	if !CanInstall() {
		return fmt.Errorf("%w; %s", ErrMayNotInstall, InstallHint())
	}
	for _, args := range [][]string{{"update", "-q"}, {"install", "-y", "-q", "--no-install-recommends", "postgresql"}} {
		if err := aptGet(ctx, out, args...); err != nil {
			return err
		}
	}
	return nil
}

func aptGet(ctx context.Context, out io.Writer, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	// Runlevel 1 asks the package not to start a server of its own.
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func isDebian() bool {
	_, err := os.Stat("/etc/debian_version")
	if err != nil {
		return false
	}
	_, err = exec.LookPath("apt-get")
	return err == nil
}
