// Package outbox brings events to sinks: at least once, in order within a subject, with one id and one set of bytes.
//
// Owns the relay: numbering of committed events, picking of what is due, back-off, and what a sink is (PROTOCOL section 12).
// Never changes an event, never remembers a last position, and holds no transaction while a sink is at work.
// Read next: sink.go, then the folders of the sinks.
package outbox
