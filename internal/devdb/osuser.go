package devdb

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// osUserName is the account that runs the server when we are root: PostgreSQL
// refuses to run as root.
const osUserName = "postgres"

// account is whom the server runs as. A nil account is ourselves.
type account struct{ uid, gid int }

// serverAccount returns nil for a normal user, and the account "postgres" for root.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(osUserName)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL refuses to run as root and there is no user %q to run it as; create it: "+
			"useradd --system --no-create-home --shell /usr/sbin/nologin %s (%w)", osUserName, osUserName, err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", osUserName, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", osUserName, err)
	}
	return &account{uid: uid, gid: gid}, nil
}

// apply makes the command run as the account. Supplementary groups are dropped.
func (a *account) apply(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if a != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
}

// own gives one path to the account.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// ownTree gives a folder and all below it to the account.
func (a *account) ownTree(root string) error {
	if a == nil {
		return nil
	}
	return filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return a.own(path)
	})
}

// mkdir makes a folder that only the account can enter. Missing parents are
// made too, for all to pass through.
func (a *account) mkdir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	return a.own(dir)
}

// reachable fails, with what to do, when the account cannot walk to dir, such
// as below a home folder of root.
func (a *account) reachable(dir string) error {
	if a == nil {
		return nil
	}
	for p := filepath.Dir(dir); ; p = filepath.Dir(p) {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		if !a.mayPass(info) {
			return fmt.Errorf("user %q, which runs PostgreSQL because root may not, cannot enter %s; "+
				"choose a data folder elsewhere (HAPAX_DATA_DIR), for instance below /var/lib", osUserName, p)
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}

func (a *account) mayPass(info os.FileInfo) bool {
	mode := info.Mode().Perm()
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return true
	}
	switch {
	case int(st.Uid) == a.uid:
		return mode&0o100 != 0
	case int(st.Gid) == a.gid:
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}

// cleanEnv is the environment for PostgreSQL's programs: nothing of ours that
// could redirect them (PGHOST, PGDATA …) and messages in English.
func cleanEnv(extra ...string) []string {
	env := make([]string, 0, len(extra)+16)
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG") || strings.HasPrefix(kv, "HAPAX_") {
			continue
		}
		env = append(env, kv)
	}
	return append(append(env, "LC_ALL=C"), extra...)
}
