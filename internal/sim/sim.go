// Package sim runs the real engine, flows and sweep deterministically: one seed is one history.
//
// Owns virtual time, a scheduler of coroutines, an in-memory store with the rules of the schema, an acquirer with its
// own register, clients, and the verdict over a world (PROTOCOL section 16).
// Never reads a clock, sleeps, starts a goroutine that runs beside another, or depends on the order of a map.
// Read next: scheduler.go, replica.go (operation.Runtime), store.go, acquirer.go, world.go.
package sim
