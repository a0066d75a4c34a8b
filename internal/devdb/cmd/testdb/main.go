// Command testdb runs a command with a PostgreSQL for tests:
//
//	go run ./internal/devdb/cmd/testdb -- go test ./...
//
// Owns one cluster for all test processes of that command, named to them by HAPAX_TEST_DATABASE_URL.
// Never touches a cluster that the variable already names.
// Read next: internal/dbtest, which leases its databases.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/hapaxpay/hapax/internal/devdb"
)

// envURL is the variable that internal/dbtest reads.
const envURL = "HAPAX_TEST_DATABASE_URL"

// couldNotRun is the exit code when the command was not run to its end.
const couldNotRun = 2

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: testdb -- command [argument ...]")
		os.Exit(couldNotRun)
	}
	code, err := run(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
		code = max(code, couldNotRun)
	}
	os.Exit(code)
}

// run returns the command's exit code; an error is about the cluster or the
// start of the command.
func run(args []string) (code int, err error) {
	// An interrupt typed at the terminal reaches the command too; here it only
	// must not end us before the cluster is stopped.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	env := os.Environ()
	if os.Getenv(envURL) == "" {
		server, err := startCluster(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, server.Kill(), server.Remove()) }()
		env = append(env, envURL+"="+server.URL(devdb.Superuser, "postgres"))
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		// Ended by a signal has no code of its own.
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// startCluster installs PostgreSQL first where it is missing and may be installed.
func startCluster(ctx context.Context) (*devdb.Server, error) {
	server, err := devdb.StartTemporary(ctx)
	if !errors.Is(err, devdb.ErrNoPostgres) || !devdb.CanInstall() {
		return server, err
	}
	fmt.Fprintln(os.Stderr, "testdb: no PostgreSQL here, installing it")
	if err := devdb.InstallDebian(ctx, os.Stderr); err != nil {
		return nil, err
	}
	return devdb.StartTemporary(ctx)
}
