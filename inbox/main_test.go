package inbox_test

import (
	"context"
	"log"
	"os"
	"testing"

	"github.com/hapaxpay/hapax/internal/dbtest"
)

// databaseURL is the example's database: an example has no testing.T to which one could be leased.
var databaseURL string

func TestMain(m *testing.M) {
	var p process
	databaseURL = dbtest.OpenEmpty(&p).Superuser()
	code := m.Run()
	for _, cleanup := range p.cleanups {
		cleanup()
	}
	os.Exit(code)
}

// process is the holder of a lease that lasts as long as the process.
type process struct {
	testing.TB
	cleanups []func()
}

func (*process) Helper()                      {}
func (*process) Context() context.Context     { return context.Background() }
func (p *process) Cleanup(f func())           { p.cleanups = append(p.cleanups, f) }
func (*process) Fatal(args ...any)            { log.Fatal(args...) }
func (*process) Fatalf(f string, args ...any) { log.Fatalf(f, args...) }
func (*process) Errorf(f string, args ...any) { log.Printf(f, args...) }
