package store

// PretendFurther makes the store believe that it has seen the server that many bytes of WAL further: what a process
// knows after its server was put back to an earlier state.
func (s *Store) PretendFurther(bytes int64) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.far.lsn += bytes
}
