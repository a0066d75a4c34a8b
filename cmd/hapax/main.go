// Command hapax is the one binary of Hapax: the service, its tools, and the sandbox acquirer.
//
// Owns the command line: what each command reads, prints and exits with.
// Never decides about a payment; wiring only.
// Read next: internal/app (a replica), README.md (the two commands to begin with).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/hapaxpay/hapax/internal/config"
)

// version is set by the linker for releases.
var version = "dev"

// Exit codes of every command.
const (
	exitGood     = 0
	exitFound    = 1 // the command ran and found something wrong
	exitCouldNot = 2 // the command could not run
)

// errFound makes a command exit with 1 without a further message.
var errFound = errors.New("found something wrong")

type cli struct {
	config.Config `embed:"" group:"Settings of every command, also from the environment:"`
	JSON          bool             `help:"One JSON object on standard output, always with \"ok\"."`
	ShowVersion   kong.VersionFlag `name:"version" help:"Print the version."`

	Dev             devCmd             `cmd:"" help:"Everything on this machine: private PostgreSQL, sandbox acquirer, API, workers."`
	Serve           serveCmd           `cmd:"" help:"The service: API and workers."`
	Migrate         migrateCmd         `cmd:"" help:"Bring the database's schema up to this version."`
	Demo            demoCmd            `cmd:"" help:"Replay known incidents against three services and print the acquirer's register of each."`
	Sandbox         sandboxCmd         `cmd:"" help:"The sandbox acquirer alone."`
	Merchant        merchantCmd        `cmd:"" help:"Merchants: add, list, policy."`
	Apikey          apikeyCmd          `cmd:"" help:"API keys: add, list, rotate with overlap, revoke."`
	AcquirerAccount acquirerAccountCmd `cmd:"" help:"Acquirer accounts: add, list, rotate secrets, pause, resume."`
	Routing         routingCmd         `cmd:"" help:"Which account takes which payment: add, list, remove rules."`
	Mail            mailCmd            `cmd:"" help:"Mails to people: templates, what was sent, what is unknown."`
	Outbox          outboxCmd          `cmd:"" help:"Events on their way to sinks: list, retry, forget a sink."`
	Inbox           inboxCmd           `cmd:"" help:"What acquirers told us by webhook: list, retry."`
	Acquirers       acquirersCmd       `cmd:"" help:"The contracts that adapters declare."`
	Timeline        timelineCmd        `cmd:"" help:"The whole story of an intent, from any id that you have."`
	Review          reviewCmd          `cmd:"" help:"What only a person may decide: list, show, decide."`
	Verify          verifyCmd          `cmd:"" help:"Check the invariants on a live database."`
	Doctor          doctorCmd          `cmd:"" help:"Check the database and its settings."`
	Bench           benchCmd           `cmd:"" help:"Measure payments and the relay next to pgbench, on a private PostgreSQL, as ratios."`
	Epoch           epochCmd           `cmd:"" help:"After a failover or restore: show, hold, acknowledge, restored."`
	ShowConfig      configCmd          `cmd:"" name:"config" help:"Print the effective settings, secrets masked."`
	Version         versionCmd         `cmd:"" help:"Print the version."`
}

// tool is what every command gets.
type tool struct {
	ctx  context.Context
	cfg  config.Config
	json bool
	in   io.Reader
	out  io.Writer
	err  io.Writer
	log  *slog.Logger
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main as a test can start it.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) (code int) {
	var c cli
	t := &tool{ctx: ctx, json: slices.Contains(args, "--json"), in: in, out: out, err: errOut}
	parser, err := kong.New(&c, kong.Name("hapax"),
		kong.Description("A self-hosted payment core: it moves money at most once per payment intent. Begin with `hapax dev`."),
		kong.Writers(out, errOut), kong.Exit(func(n int) { panic(exit(n)) }), kong.Vars{"version": "hapax " + version},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: helpWidth}), kong.Help(help))
	if err != nil {
		return t.exit(err)
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case exit: // --help, --version
			code = int(e)
		default:
			panic(e)
		}
	}()
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return t.exit(err)
	}
	level, err := leastLevel(c.LogLevel, parsed.Command())
	if err != nil {
		return t.exit(err)
	}
	t.cfg, t.json = c.Config, c.JSON
	t.log = slog.New(slog.NewJSONHandler(errOut, &slog.HandlerOptions{Level: level}))
	return t.exit(parsed.Run(t))
}

// helpWidth is the widest help, in columns.
const helpWidth = 110

// help prints the help of a command. The settings, which all commands share, are told by `hapax config --help` alone.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	selected := ctx.Selected()
	settings := selected != nil && selected.Name == "config"
	for _, f := range ctx.Model.Flags {
		f.Hidden = f.Group != nil && !settings
	}
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil || settings {
		return err
	}
	_, err := fmt.Fprintln(ctx.Stdout, "\nSettings, by flag or environment: `hapax config --help`, docs/config.md.")
	return err
}

// serving are the commands whose log is the story of what they did. A tool says what it did itself, and dev tells a
// person what to do, which must not drown.
var serving = []string{"serve", "sandbox"}

// leastLevel reads HAPAX_LOG_LEVEL for a command.
func leastLevel(configured, command string) (level slog.Level, err error) {
	switch {
	case configured != config.LogAuto:
		err = level.UnmarshalText([]byte(configured))
	case slices.Contains(serving, command):
		level = slog.LevelInfo
	default:
		level = slog.LevelWarn
	}
	return level, err
}

type exit int

// exit tells what went wrong and chooses the exit code.
func (t *tool) exit(err error) int {
	switch {
	case err == nil:
		return exitGood
	case errors.Is(err, errFound):
		return exitFound
	}
	if t.json {
		if printErr := t.print(map[string]any{"ok": false, "error": err.Error()}); printErr != nil {
			fmt.Fprintln(t.err, "hapax:", printErr)
		}
	}
	fmt.Fprintln(t.err, "hapax:", err)
	return exitCouldNot
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(t *tool) error {
	return t.tell(map[string]any{"ok": true, "version": version}, "hapax "+version)
}
