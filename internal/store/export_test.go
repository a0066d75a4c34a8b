package store

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// Prepared counts the named prepared statements of one of the store's connections.
func (s *Store) Prepared(t testing.TB) (n int) {
	t.Helper()
	err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''", pgx.QueryExecModeExec).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// PretendFurther makes the store believe that it has seen the server that many bytes of WAL further: what a process
// knows after its server was put back to an earlier state.
func (s *Store) PretendFurther(bytes int64) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.far.lsn += bytes
}
