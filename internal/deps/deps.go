//go:build deps

// Package deps pins the module list while the first packages are being written.
package deps

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/bojanz/currency"
	_ "github.com/danielgtaylor/huma/v2"
	_ "github.com/danielgtaylor/huma/v2/adapters/humago"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/pgconn"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "go.uber.org/goleak"
	_ "golang.org/x/time/rate"
	_ "golang.org/x/sync/errgroup"
	_ "pgregory.net/rapid"
)
