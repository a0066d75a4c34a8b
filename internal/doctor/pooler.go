package doctor

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

const backendSQL = "SELECT pg_backend_pid()"

// pooled says whether a transaction pooler stands between us and the server. The proof: while one connection of ours is
// open but idle, another one is served by the same backend, or the idle one finds itself at a different backend. An
// address that was changed on the way (NAT, a plain proxy) proves nothing.
func pooled(ctx context.Context, url string) (found bool, err error) {
	idle, err := dial(ctx, url)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, idle.Close(context.WithoutCancel(ctx))) }()
	busy, err := dial(ctx, url)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, busy.Close(context.WithoutCancel(ctx))) }()
	first, err := backend(ctx, idle)
	if err != nil {
		return false, err
	}
	open, err := busy.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, open.Rollback(context.WithoutCancel(ctx))) }()
	second, err := backend(ctx, open)
	if err != nil {
		return false, err
	}
	again, err := backend(ctx, idle)
	return first == second || first != again, err
}

func dial(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the database URL cannot be read") // the parser quotes its input
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing prepared: a pooler may be there
	return pgx.ConnectConfig(ctx, cfg)
}

func backend(ctx context.Context, from interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) (pid int32, err error) {
	err = from.QueryRow(ctx, backendSQL).Scan(&pid)
	return pid, err
}
